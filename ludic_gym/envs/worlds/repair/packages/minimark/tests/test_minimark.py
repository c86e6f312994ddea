import unittest

from minimark import blocks, inline, slug, to_html


class MinimarkTest(unittest.TestCase):
    def test_paragraphs(self):
        self.assertEqual(blocks("a\nb\n\nc"), [("p", "a b"), ("p", "c")])

    def test_list(self):
        self.assertEqual(blocks("- a\n- b"), [("list", ["a", "b"])])

    def test_strong(self):
        self.assertEqual(inline("a **b** c"), "a <strong>b</strong> c")

    def test_slug(self):
        self.assertEqual(slug("Hello, World"), "hello-world")

    def test_heading(self):
        self.assertEqual(to_html("# One"), '<h1 id="one">One</h1>')


if __name__ == "__main__":
    unittest.main()
