"""DataAnalysis: answers worked out by hand, and by programs in the sandbox."""

import numpy as np
import pytest

from ludic_gym.envs.worlds import tables
from ludic_gym.envs.worlds.data_analysis import DataAnalysisEnv, Study
from ludic_gym.envs.worlds.tables import PRODUCTS, Sales

# Three orders: revenues 2 * 10 = 20, 3 * 4 = 12 and 1 * 7 = 7.
SMALL = Sales(
    day=("2024-01-05", "2024-01-09", "2024-02-01"),
    month=np.array([1, 1, 2]),
    region=np.array(["North", "North", "South"]),
    channel=np.array(["shop", "online", "shop"]),
    product=np.array(["lamp", "rug", "lamp"]),
    units=np.array([2, 3, 1]),
    price=np.array([10.0, 4.0, 7.0]),
    rating=np.array([np.nan, 3.0, 5.0]),
    cost=dict.fromkeys(PRODUCTS, 3.0),
    category={name: "light" if name == "lamp" else "wood" for name in PRODUCTS},
)


def answers(maker):
    """All answers of a kind of question on the small table, by text."""
    rng = np.random.default_rng(0)
    found = (maker(SMALL, rng) for _ in range(400))
    return {one.text: one.answer for one in found if not np.isnan(one.answer)}


def answer(maker, *words):
    """The one answer whose question has all the words."""
    found = {v for text, v in answers(maker).items() if all(word in text for word in words)}
    assert len(found) == 1
    return found.pop()


def test_answers_worked_out_by_hand():
    assert answer(tables.revenue, "North") == 32
    # Shop: (20 + 7) / (2 + 1).
    assert answer(tables.mean_price, "shop") == 9
    # Online: 12 of 32.
    assert answer(tables.share, "North", "online") == 37.5
    assert answer(tables.median, "January") == 16
    # 20 and 12 differ from their mean by 4: sqrt(32 / 1).
    assert answer(tables.deviation, "North") == pytest.approx(32**0.5)
    # Only the first lamp has no rating.
    assert answer(tables.rated_orders, "products lamp") == 20
    # Lamps: 2 * (10 - 3) in the North.
    assert answer(tables.profit, "light", "North") == 14
    # Light: 14 in January, 1 * (7 - 3) in February. Wood: 3 * (4 - 3).
    assert answer(tables.best_month, "light") == 14
    assert answer(tables.best_month, "wood") == 3
    # Light: mean of 20 and 7; wood: 12.
    assert answer(tables.spread, "category light higher") == 1.5


def study():
    """An env in the middle of a study whose answer is 2.5."""
    env = DataAnalysisEnv("easy")
    env.reset(seed=0)
    files = (("sales.csv", b"a,b\n1,2\n"),)
    env.study = Study(text="?", files=files, answer=2.5, program="print(2.5)\n")
    return env


@pytest.mark.parametrize(
    ("reply", "success"),
    [
        ("<answer>2.5</answer>", True),
        ("2.50.", True),
        ("The answer is 2.5", True),
        ("<answer>2.51</answer>", True),
        ("<answer>2.52</answer>", False),
        ("<answer>-2.5</answer>", False),
        ("<answer>1e400</answer>", False),
    ],
)
def test_an_answer_ends_the_study(reply, success):
    _, reward, over, truncated, info = study().step(reply)
    assert (reward, over, truncated) == (float(success), True, False)
    assert (info["success"], info["truth"]) == (success, "2.50")


@pytest.mark.parametrize("reply", ["", "no idea", "<answer>2.5</answer> or <answer>3</answer>"])
def test_anything_else_costs_a_turn(reply):
    env = study()
    text, _, over, _, info = env.step(reply)
    assert "Turns left: 5" in text
    assert (over, info) == (False, {"illegal": True})


def test_a_program_reads_the_files_and_leaves_nothing_behind():
    env = study()
    text, *_ = env.step('```python\nprint(open("sales.csv").read())\nopen("x", "w")\n```')
    assert text == "a,b\n1,2\n\nTurns left: 5".replace("\n\n", "\n")
    text, *_ = env.step('```python\nopen("x")\n```')
    assert "FileNotFoundError" in text
    assert "Exit code 1." in text


@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(100, 250), marks=pytest.mark.slow)])
@pytest.mark.parametrize("level", ["easy", "medium", "hard"])
def test_programs_find_the_answers_from_the_files(level, seeds):
    # The answers come from the columns in memory, the programs read and clean the files.
    env = DataAnalysisEnv(level)
    for seed in seeds:
        env.reset(seed=seed)
        env.step(env.oracle_action())
        *_, info = env.step(env.oracle_action())
        assert info["success"], seed
