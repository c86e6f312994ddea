import unittest

from measures import Quantity, UnitError, convert, human_bytes, human_time, parse


class MeasuresTest(unittest.TestCase):
    def test_convert(self):
        self.assertEqual(convert(2, "km", "m"), 2000)

    def test_unknown_unit(self):
        with self.assertRaises(UnitError):
            convert(1, "mile", "m")

    def test_parse(self):
        self.assertEqual(repr(parse("1.5 km")), "1.5 km")

    def test_sum(self):
        self.assertEqual(repr(Quantity(1, "h") + Quantity(30, "min")), "1.5 h")

    def test_texts(self):
        self.assertEqual(human_bytes(2048), "2.0 KiB")
        self.assertEqual(human_time(61), "1m 1s")


if __name__ == "__main__":
    unittest.main()
