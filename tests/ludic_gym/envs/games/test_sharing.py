import numpy as np
import pytest

from ludic_gym.envs.games.negotiation import (
    Scenario,
    any_scenario,
    fair_share,
    in_words,
    is_efficient,
    is_interesting,
    parsed_share,
    points,
    shares,
)

# One book, two hats, three balls; all are worth 10 to each.
SCENARIO = Scenario((1, 2, 3), ((1, 3, 1), (4, 0, 2)))


def test_points_by_hand():
    # The first player takes both hats, the second gets a book and three balls: 2 * 3, 4 + 3 * 2.
    assert points(SCENARIO, (0, 2, 0)) == (6, 10)
    assert points(SCENARIO, (1, 2, 3)) == (10, 0)
    assert len(shares((1, 2, 3))) == 2 * 3 * 4


def test_a_deal_is_efficient_if_nobody_can_get_more_for_free():
    # Hats are worth nothing to the second player, so to leave it one is a waste.
    assert not is_efficient(SCENARIO, (0, 1, 0))
    assert is_efficient(SCENARIO, (0, 2, 0))
    # 8 and 6: two balls more for the first cost the second four points.
    assert points(SCENARIO, (0, 2, 2)) == (8, 6)
    assert fair_share(SCENARIO) == (0, 2, 1)  # 7 and 8


def test_scenarios_are_worth_ten_to_both_and_leave_a_fair_deal():
    rng = np.random.default_rng(0)
    drawn = {any_scenario(rng) for _ in range(300)}
    assert len(drawn) > 200
    for scenario in drawn:
        assert 5 <= sum(scenario.counts) <= 7
        assert points(scenario, scenario.counts) == (10, 0)
        assert points(scenario, (0, 0, 0)) == (0, 10)
        assert min(points(scenario, fair_share(scenario))) >= 5
        assert is_efficient(scenario, fair_share(scenario))


@pytest.mark.parametrize(
    "values", [((1, 3, 1), (1, 3, 1)), ((4, 0, 2), (10, 0, 0)), ((0, 5, 0), (0, 5, 0))]
)
def test_what_leaves_nothing_to_negotiate_is_no_scenario(values):
    assert not is_interesting(Scenario((1, 2, 3), values))


@pytest.mark.parametrize(
    ("text", "share"),
    [
        (" 1 book, 2 hats", (1, 2, 0)),
        ("2 Hats and 1 ball", (0, 2, 1)),
        ("1 2 0", (1, 2, 0)),
        ("0, 0, 3", (0, 0, 3)),
        ("0 books", (0, 0, 0)),
        ("2 books", None),
        ("1 book 1 book", None),
        ("1 book 1 books", None),
        ("1 car", None),
        ("everything", None),
        ("1 2", None),
        ("", None),
    ],
)
def test_shares_are_read_in_words_or_numbers(text, share):
    assert parsed_share(text, (1, 2, 3)) == share


def test_shares_in_words():
    assert in_words((1, 0, 2)) == "1 book, 2 balls"
    assert in_words((0, 0, 0)) == "nothing"
