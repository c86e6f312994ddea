import unittest

from memostore import Cache, memoize


class MemostoreTest(unittest.TestCase):
    def test_set_and_get(self):
        cache = Cache(2)
        cache.set("a", 1)
        self.assertEqual(cache.get("a"), 1)
        self.assertIsNone(cache.get("b"))

    def test_size(self):
        cache = Cache(2)
        for key in "abc":
            cache.set(key, key)
        self.assertEqual(len(cache), 2)

    def test_bad_size(self):
        with self.assertRaises(ValueError):
            Cache(0)

    def test_memoize(self):
        square = memoize()(lambda x: x * x)
        self.assertEqual([square(3), square(3)], [9, 9])


if __name__ == "__main__":
    unittest.main()
