import unittest

from stencil import TemplateError, render, tokens


class StencilTest(unittest.TestCase):
    def test_value(self):
        self.assertEqual(render("Hello {{ name }}!", name="Ada"), "Hello Ada!")

    def test_if(self):
        self.assertEqual(render("{% if x %}yes{% end %}", x=1), "yes")

    def test_for(self):
        self.assertEqual(render("{% for x in xs %}{{ x }},{% end %}", xs=[1, 2]), "1,2,")

    def test_unknown_block(self):
        with self.assertRaises(TemplateError):
            render("{% while x %}{% end %}")

    def test_tokens(self):
        self.assertEqual(tokens("a{{ b }}"), [("text", "a", 1), ("value", "b", 1)])


if __name__ == "__main__":
    unittest.main()
