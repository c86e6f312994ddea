import unittest

from tallybook import Query, group, summary, where

ROWS = [{"name": "Ada", "age": 36}, {"name": "Bob", "age": 25}]


class TallybookTest(unittest.TestCase):
    def test_where(self):
        self.assertEqual([where(age__gt=30)(row) for row in ROWS], [True, False])

    def test_sort(self):
        self.assertEqual([row["name"] for row in Query(ROWS).sort("age")], ["Bob", "Ada"])

    def test_group(self):
        self.assertEqual(list(group(ROWS, "name")), ["Ada", "Bob"])

    def test_summary(self):
        self.assertEqual(summary(ROWS, "age")["sum"], 61)

    def test_page(self):
        self.assertEqual(len(Query(ROWS).page(1, size=1)), 1)


if __name__ == "__main__":
    unittest.main()
