import unittest
from datetime import datetime

from timetable import Plan, parse_field


class TimetableTest(unittest.TestCase):
    def test_simple_fields(self):
        self.assertEqual(parse_field("5", 0, 59), [5])
        self.assertEqual(parse_field("1-4", 0, 59), [1, 2, 3, 4])

    def test_names(self):
        self.assertEqual(parse_field("mon-fri", 0, 6), [0, 1, 2, 3, 4])

    def test_same_day(self):
        plan = Plan("30 9 *")
        self.assertEqual(plan.next_after(datetime(2024, 1, 1, 8)), datetime(2024, 1, 1, 9, 30))

    def test_two_fields_are_too_few(self):
        with self.assertRaises(ValueError):
            Plan("0 0")


if __name__ == "__main__":
    unittest.main()
