import unittest

from semrange import Range, Version, newest


class SemrangeTest(unittest.TestCase):
    def test_order(self):
        self.assertLess(Version("1.2.3"), Version("1.10.0"))

    def test_not_a_version(self):
        with self.assertRaises(ValueError):
            Version("one")

    def test_text(self):
        self.assertEqual(repr(Version("v1.2")), "1.2.0")

    def test_simple_range(self):
        self.assertIn(Version("1.5.0"), Range(">=1.2, <2"))
        self.assertNotIn(Version("2.1.0"), Range(">=1.2, <2"))

    def test_newest(self):
        self.assertEqual(newest([Version("1.0.0"), Version("1.1.0")], "*"), Version("1.1.0"))


if __name__ == "__main__":
    unittest.main()
