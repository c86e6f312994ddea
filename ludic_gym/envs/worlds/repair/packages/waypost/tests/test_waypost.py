import unittest

from waypost import NoRoute, Pattern, Router, parse_query, write_query


class WaypostTest(unittest.TestCase):
    def test_plain_pattern(self):
        self.assertEqual(Pattern("/about").match("/about"), {})
        self.assertIsNone(Pattern("/about").match("/other"))

    def test_hole(self):
        self.assertEqual(Pattern("/users/{name}").match("/users/ada"), {"name": "ada"})

    def test_router(self):
        router = Router()
        router.add("home", "/")
        self.assertEqual(router.find("GET", "/"), ("home", {}, {}))
        with self.assertRaises(NoRoute):
            router.find("GET", "/nothing")

    def test_query(self):
        self.assertEqual(parse_query("a=1"), {"a": ["1"]})
        self.assertEqual(write_query({"a": 1}), "a=1")


if __name__ == "__main__":
    unittest.main()
