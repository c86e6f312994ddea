import unittest

from textgrid import indent, justify, render, shorten, wrap


class TextgridTest(unittest.TestCase):
    def test_words_are_kept_whole(self):
        self.assertEqual(wrap("one two three", 7), ["one two", "three"])

    def test_empty_text(self):
        self.assertEqual(wrap("", 5), [])

    def test_indent(self):
        self.assertEqual(indent(["a", "", "b"], "> "), ["> a", "", "> b"])

    def test_short_text_is_unchanged(self):
        self.assertEqual(shorten("short", 10), "short")

    def test_justify_even_gaps(self):
        self.assertEqual(justify("a b c", 7), "a  b  c")

    def test_table(self):
        self.assertEqual(render([["ab", 1], ["c", 22]]), "ab   1\nc   22")


if __name__ == "__main__":
    unittest.main()
