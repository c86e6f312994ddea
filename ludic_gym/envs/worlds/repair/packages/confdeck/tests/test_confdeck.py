import unittest

from confdeck import ConfigError, convert, expand, flatten, merge, parse


class ConfdeckTest(unittest.TestCase):
    def test_sections(self):
        self.assertEqual(parse("a = 1\n[x]\nb = 2"), {"": {"a": "1"}, "x": {"b": "2"}})

    def test_no_value(self):
        with self.assertRaises(ConfigError):
            parse("[x]\nword")

    def test_convert(self):
        self.assertEqual(
            [convert(text) for text in ("3", "0.5", "yes", "word")], [3, 0.5, True, "word"]
        )

    def test_expand(self):
        self.assertEqual(expand({"x": {"a": "1", "b": "${a}2"}}), {"x": {"a": "1", "b": "12"}})

    def test_layers(self):
        self.assertEqual(merge({"x": {"a": 1}}, {"x": {"a": 2}}), {"x": {"a": 2}})
        self.assertEqual(flatten({"x": {"a": 2}}), {"x.a": 2})


if __name__ == "__main__":
    unittest.main()
