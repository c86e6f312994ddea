import unittest

from ledger import Book, cents, euros, split, trial


class LedgerTest(unittest.TestCase):
    def setUp(self):
        self.book = Book()
        self.book.open("bank")
        self.book.open("cash", limit=0)

    def test_amounts(self):
        self.assertEqual(cents("12.34"), 1234)
        self.assertEqual(euros(1234), "12.34")

    def test_even_split(self):
        self.assertEqual(split(900, 3), [300, 300, 300])

    def test_balance(self):
        self.book.post("2024-01-01", "bank", "cash", 500)
        self.assertEqual(self.book.balance("cash"), 500)
        self.assertEqual(self.book.balance("bank"), -500)

    def test_limit(self):
        with self.assertRaises(ValueError):
            self.book.post("2024-01-01", "cash", "bank", 1)

    def test_trial(self):
        self.assertEqual(trial(self.book), ({}, 0))


if __name__ == "__main__":
    unittest.main()
