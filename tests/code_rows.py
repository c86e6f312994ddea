"""A row that programs are graded by, and what one of them earns."""


def answer(env, action):
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step(action)
    assert terminated is not truncated
    return reward, info


ADD = {
    "prompt": "Write `def add(a, b)`, the sum.",
    "name": "add",
    "solution": "def add(a, b):\n    return a + b",
    "calls": [[1, 2], [0, 0], [-1, 1], [5, 5]],
    "expected": [3, 0, 0, 10],
}
