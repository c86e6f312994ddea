import unittest

from worktree import CycleError, Graph, finish_times, waves


class WorktreeTest(unittest.TestCase):
    def setUp(self):
        self.graph = Graph()
        self.graph.add("build", 2)
        self.graph.add("test", 3, needs=["build"])

    def test_order(self):
        self.assertEqual(self.graph.order(), ["build", "test"])

    def test_finish(self):
        self.assertEqual(finish_times(self.graph), {"build": 2, "test": 5})

    def test_waves(self):
        self.assertEqual(waves(self.graph), [["build"], ["test"]])

    def test_cycle(self):
        graph = Graph()
        graph.add("a", needs=["b"])
        graph.add("b", needs=["a"])
        with self.assertRaises(CycleError):
            graph.order()


if __name__ == "__main__":
    unittest.main()
