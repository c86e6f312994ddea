"""The bundled questions have the right answers, as found by other means than their own words."""

import json
from fractions import Fraction as F
from functools import reduce
from itertools import combinations, permutations, product
from math import cos, factorial, gcd, isqrt, pi, radians, sin, tan
from pathlib import Path

import gymnasium as gym
import pytest

import ludic_gym
from ludic_gym.graders.maths import grade_maths

FOLDER = Path(ludic_gym.__file__).parent / "envs" / "data"

# How a question begins, and its answer.
WORD_PROBLEMS = [
    ("A cable car takes 48 people on e", lambda: sum([7] * 6 + [5]) * 48),
    ("Rosa reads 18 pages on Monday an", lambda: sum(18 + 4 * d for d in range(5))),
    ("A tank holds 240 litres and is a", lambda: next(m for m in range(999) if 60 + 12 * m >= 240)),
    ("Emil has 5 coins of 20 cents, 8 ", lambda: sum([20] * 5 + [10] * 8 + [5] * 6) - 125),
    ("A gardener plants tulips in 9 ro", lambda: 9 * 14 * 2 // 3 // 2),
    ("A cyclist rides 18 kilometres an", lambda: (18 * 5 + 12 * 3) // 2),
    ("A box of 24 bottles costs $36, a", lambda: 5 * (24 * 2 - 36)),
    ("Of 350 pupils 60% come by bus an", lambda: 350 - 350 * 60 // 100 - 50),
    (
        "Hana is 9 years old and her aunt",
        lambda: next(y for y in range(99) if 37 + y == 3 * (9 + y)),
    ),
    ("A printer prints 16 pages a minu", lambda: 72 * 4 // 16 + 3),
    (
        "A rope of 50 metres is cut into ",
        lambda: next(a + 10 for a in range(50) if a + 2 * a + a + 10 == 50),
    ),
    ("A mason lays 45 bricks an hour a", lambda: sum(45 + (30 if h != 3 else 0) for h in range(6))),
    ("A jacket costs $80. It is reduce", lambda: 80 * 75 * 90 // 10000),
    (
        "In a forest there are twice as m",
        lambda: next(2 * b for b in range(999) if 2 * b + b + b - 15 == 185),
    ),
    ("A farmer sells 3/5 of his 400 ki", lambda: 400 * 3 // 5 * 2 + 400 * 2 // 5 * 3 // 2),
    ("A film of 2 hours and 20 minutes", lambda: 2 * 60 + 20 + 4 * 6),
    ("A phone plan costs $12 a month a", lambda: (1200 + 5 * (260 - 100)) // 100),
    ("A pool is 25 metres long. Lea sw", lambda: 25 * (40 + 40 + 40 + 28)),
    ("A machine makes 350 screws an ho", lambda: 350 * 98 // 100 * 8),
    (
        "Noah has 3 times as many sticker",
        lambda: next(3 * i for i in range(999) if 3 * i - 24 == i + 24),
    ),
    ("A wall is 6 metres long and 2.5 ", lambda: (6 * 5 // 2 - 3) * 2 // 4),
    ("A train leaves with 240 seats ta", lambda: (240 * 3 // 4 + 20) * 3 // 4 + 20),
    (
        "A bakery uses 2 eggs for a small",
        lambda: next(n for n in range(99) if 14 * 2 + 5 * n == 88),
    ),
    ("Vera's heart beats 72 times a mi", lambda: sum(126 if m < 20 else 72 for m in range(60))),
    ("A submarine is 120 metres below ", lambda: 0 - 120 - 45 + 90),
    ("A clock gains 4 minutes every da", lambda: 4 * 13 // 2),
    ("A cook mixes 1.2 kilograms of fl", lambda: (1200 + 350 + 250) // 9),
    (
        "Two candles are 30 and 24 centim",
        lambda: next(h for h in range(99) if 30 - 3 * h == 24 - 2 * h),
    ),
    ("A school orders 12 boxes of 30 p", lambda: (12 * 30 - 8 * 40) // 5),
]
MATHS = [
    (r"What is the value of $\frac{3}{4}", lambda: F(3, 4) + F(5, 6)),
    ("Solve $2x + 7", lambda: next(x for x in range(99) if 2 * x + 7 == 19)),
    (r"Simplify $\sqrt{48}", lambda: f"{isqrt(48 // 3)}\\sqrt{{3}}"),
    ("What is the sum of the first 20", lambda: sum(range(21))),
    ("How many ways are there to arrange", lambda: len(set(permutations("LEVEL")))),
    ("Two fair dice", lambda: F(sum(a + b == 9 for a, b in product(range(1, 7), repeat=2)), 36)),
    ("What is the greatest common", lambda: gcd(84, 126)),
    ("What is the remainder when $3^{10}", lambda: 3**10 % 7),
    ("A circle has radius 5", lambda: f"{5 * 5}\\pi"),
    ("A right triangle has legs", lambda: isqrt(8 * 8 + 15 * 15)),
    ("What is the sum of the roots of $2x", lambda: F(10, 2)),
    ("What is the distance between", lambda: isqrt(3 * 3 + 4 * 4)),
    ("For which value of $k$", lambda: next(k for k in range(1, 99) if k * k == 4 * 9)),
    (r"What is $15\%$", lambda: F(15, 100) * 80),
    ("What is the base-ten", lambda: int("1101", 2)),
    (r"What is $\log_2", lambda: next(k for k in range(99) if 2**k == 64)),
    ("What is the determinant", lambda: 2 * 4 - 3 * 1),
    (r"What is $\cos 60", lambda: F(round(2 * cos(radians(60)), 9)) / 2),
    (r"What is $\frac{7}{8}", lambda: F(7, 8) - F(5, 12)),
    ("What percentage of 2", lambda: F(35, 250) * 100),
    ("Write $0.375$ as a f", lambda: F(375, 1000)),
    (r"What is $2^3 + 3^2 \c", lambda: 2**3 + 3**2 * 4 - 5),
    ("The mean of five num", lambda: next(x for x in range(99) if 9 + 10 + 14 + 15 + x == 60)),
    (r"Solve $\frac{x}{3} -", lambda: next(x for x in range(99) if F(x, 3) - 4 == 5)),
    (
        "If $x + y = 10$ and ",
        lambda: next(x * x + (10 - x) ** 2 for x in range(11) if x * (10 - x) == 21),
    ),
    ("What is the sum of the i", lambda: F(6) / (1 - F(1, 3))),
    ("What is the slope of", lambda: F(-5 - 7, 4 + 2)),
    ("For how many integer", lambda: sum(abs(2 * n - 5) < 9 for n in range(-50, 50))),
    ("Let $f(x) = 3x - 4$.", lambda: next(x for x in range(99) if 3 * (3 * x - 4) - 4 == 29)),
    (
        "What is the largest ",
        lambda: max(-2 * F(x, 10) ** 2 + 12 * F(x, 10) - 7 for x in range(-100, 100)),
    ),
    (
        "How many four-digit ",
        lambda: sum(
            len(set(str(n))) == 4 and set(str(n)) <= set("13579") for n in range(1000, 10000)
        ),
    ),
    (
        "A committee of 3 is ",
        lambda: sum(sum(p < 5 for p in c) == 2 for c in combinations(range(9), 3)),
    ),
    ("A fair coin is tosse", lambda: F(sum(sum(t) == 3 for t in product((0, 1), repeat=5)), 32)),
    (
        "How many subsets of ",
        lambda: sum(
            any(n % 2 == 0 for n in s) for k in range(9) for s in combinations(range(1, 9), k)
        ),
    ),
    (
        "An urn holds 4 red a",
        lambda: F(sum((a < 4) != (b < 4) for a, b in combinations(range(10), 2)), 45),
    ),
    (
        "In how many ways can",
        lambda: len({min(p[i:] + p[:i] for i in range(6)) for p in permutations(range(6))}),
    ),
    (
        "What is the least co",
        lambda: next(n for n in range(1, 9999) if n % 18 == n % 24 == n % 30 == 0),
    ),
    ("How many positive di", lambda: sum(360 % d == 0 for d in range(1, 361))),
    ("What is the units di", lambda: 7**2023 % 10),
    ("What is the smallest", lambda: next(n for n in range(1, 99) if n % 5 == 2 and n % 7 == 3)),
    ("With how many zeros ", lambda: len(str(factorial(50))) - len(str(factorial(50)).rstrip("0"))),
    ("What is the sum of a", lambda: sum(n for n in range(1, 100) if n % 4 == n % 6 == 0)),
    (
        "How many positive in",
        lambda: 1000 - len({n**2 for n in range(1, 32)} | {n**3 for n in range(1, 11)}),
    ),
    ("A rectangle is 9 lon", lambda: next(d for d in range(99) if d * d == 9 * 9 + 12 * 12)),
    ("The angles of a tria", lambda: F(180 * 7, 12)),
    ("What is the volume o", lambda: f"{F(1, 3) * 9 * 7}\\pi"),
    ("An equilateral trian", lambda: f"{F(8 * 8, 4)}\\sqrt{{3}}"),
    ("A triangle has the s", lambda: isqrt(21 * 8 * 7 * 6)),
    ("A chord that is 6 aw", lambda: next(r for r in range(99) if r * r == 6 * 6 + 8 * 8)),
    (
        "How many diagonals h",
        lambda: sum((b - a) % 12 not in (1, 11) for a, b in combinations(range(12), 2)),
    ),
    ("What is the remainder when $x^3 ", lambda: 2**3 - 2 * 2 + 5),
    ("What is the product ", lambda: F(12, 3)),
    ("For which real $x$ i", lambda: next(x for x in range(1, 99) if 2 ** (x + 1) == 8 ** (x - 1))),
    ("What is $|5 - 12i|$?", lambda: int(abs(5 - 12j))),
    (
        "What is $i^{2022} + ",
        lambda: "-i" if sum([1, 1j, -1, -1j][k % 4] for k in (2022, 2023, 2024)) == -1j else "",
    ),
    ("Let $a_1 = 1$ and $a", lambda: reduce(lambda a, _: 2 * a + 3, range(5), 1)),
    (r"What is the value of $\s", lambda: sum(F(1, k * (k + 1)) for k in range(1, 100))),
    (r"What is $\sin^2 15^\c", lambda: round(sin(radians(15)) ** 2 + sin(radians(75)) ** 2, 9)),
    ("What is the dot prod", lambda: 3 * 4 - 1 * 5 - 2 * 3),
    (r"What is $\tan \frac{", lambda: round(tan(pi / 3) * tan(pi / 6), 9)),
    ("For which $t$ are th", lambda: next(t for t in range(-9, 9) if 2 * (t - 3) + 4 * t == 0)),
    ("What is the area of ", lambda: F(abs(6 * 7 - 2 * 3), 2)),
]


def rows(name):
    """The rows of a bundled file."""
    text = (FOLDER / f"{name}_sample.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def only(questions, field, start):
    """The one row that begins so."""
    (row,) = [row for row in questions if row[field].startswith(start)]
    return row


@pytest.mark.parametrize(("start", "value"), WORD_PROBLEMS, ids=[p[0] for p in WORD_PROBLEMS])
def test_a_word_problem_has_the_answer_that_a_program_finds(start, value):
    row = only(rows("gsm8k"), "question", start)
    assert row["answer"].rpartition("#### ")[2] == str(value())


@pytest.mark.parametrize(("start", "value"), MATHS, ids=[p[0] for p in MATHS])
def test_a_competition_problem_has_the_answer_that_a_program_finds(start, value):
    row = only(rows("math"), "problem", start)
    assert grade_maths(f"\\boxed{{{value()}}}", row["answer"]).correct, (value(), row["answer"])


def test_every_level_and_subject_has_a_problem():
    problems = rows("math")
    assert {row["level"] for row in problems} == {1, 2, 3, 4, 5}
    assert len({row["subject"] for row in problems}) == 7


def test_the_right_choice_stands_at_every_place_as_often():
    places = [row["answer"] for row in rows("multiple_choice")]
    assert {places.count(place) for place in range(4)} == {13}


def test_no_short_answer_is_given_away_by_its_question():
    env = gym.make("ludic/ShortAnswer-v0").unwrapped
    for row in range(env.num_rows):
        question, _ = env.reset(options={"row": row})
        assert env.step(question)[1] == 0.0
