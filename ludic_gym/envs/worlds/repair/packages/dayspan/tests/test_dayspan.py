import unittest

from dayspan import Calendar, Span, gaps, merged


class DayspanTest(unittest.TestCase):
    def test_length(self):
        self.assertEqual(len(Span("2024-01-01", "2024-01-07")), 7)

    def test_wrong_order(self):
        with self.assertRaises(ValueError):
            Span("2024-01-02", "2024-01-01")

    def test_contains(self):
        self.assertIn("2024-01-03", Span("2024-01-01", "2024-01-07"))

    def test_merged(self):
        spans = [Span("2024-01-05", "2024-01-09"), Span("2024-01-01", "2024-01-06")]
        self.assertEqual(merged(spans), [Span("2024-01-01", "2024-01-09")])

    def test_no_gap(self):
        self.assertEqual(gaps([Span("2024-01-01")]), [])

    def test_working_days(self):
        self.assertEqual(Calendar().count(Span("2024-01-01", "2024-01-07")), 5)


if __name__ == "__main__":
    unittest.main()
