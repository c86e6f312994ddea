import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludic_gym.bench.comparison import (
    Run,
    Setup,
    board_lines,
    board_table,
    boards,
    boards_json,
    compare,
    sign_flip_p_value,
)
from ludic_gym.bench.result import Score
from ludic_gym.errors import ConfigError


def scores(*successes, rewards=None):
    rewards = rewards or [float(s) for s in successes]
    pairs = zip(successes, rewards, strict=True)
    return [Score(index=i, task=i, success=s, reward=r) for i, (s, r) in enumerate(pairs)]


def test_five_tasks_won_and_none_lost_is_the_exact_mcnemar_test():
    # All five signs equal: 2 of the 32 ways, p = 1/16.
    comparison = compare(scores(*[False] * 5, True), scores(*[True] * 6))
    assert comparison.p_value == 1 / 16
    assert (comparison.first, comparison.second) == pytest.approx((1 / 6, 1.0))
    assert comparison.difference == pytest.approx(5 / 6)


def test_only_tasks_that_both_finished_count():
    # One of 50 is 2%, and no more.
    first = [*scores(*[True] * 49), Score(index=49, task=49, error="boom")]
    second = [*scores(False, *[True] * 48), Score(index=49, task=49, success=True)]
    comparison = compare(first, second)
    assert comparison.tasks == 49
    assert comparison.difference == pytest.approx(-1 / 49)


def test_without_success_the_reward_ranks():
    runs = [
        Run(
            name=name,
            policy="",
            scores={FOUR: [Score(index=i, task=i, success=None, reward=r) for i in range(3)]},
        )
        for name, r in (("a", 0.25), ("b", 0.5))
    ]
    (board,) = boards(runs)
    assert (board.measure, ranks(board)) == ("reward", [(1, "b"), (2, "a")])
    with pytest.raises(ConfigError, match="says nothing of success"):
        compare(runs[0].scores[FOUR], runs[1].scores[FOUR])


def test_a_run_with_over_2_percent_of_ends_by_others_is_neither_compared_nor_ranked():
    # One of 49 is 2.04%; the model's own errors are failures.
    own = [Score(index=i, task=i, error="PromptTooLong: 9", blame="model") for i in range(10)]
    broken = [*own, *scores(*[True] * 38), Score(index=48, task=48, error="ClientError: 503")]
    whole = scores(*[False] * 49)
    with pytest.raises(ConfigError, match=r"1 of 49 episodes \(2.0%\) were ended by the"):
        compare(whole, broken)
    runs = [Run(name=n, policy="", scores={FOUR: s}) for n, s in (("a", broken), ("b", whole))]
    (board,) = boards(runs, baseline="b")
    assert [(s.rank, s.name, s.difference) for s in board.standings] == [
        (1, "b", None),
        (None, "a", None),
    ]
    (line,) = board_lines(board)
    assert line.startswith("a has no rank: 1 of 49 episodes (2.0%) were ended by the environment")


def test_samples_of_a_task_are_averaged():
    first = [Score(index=i, task=0, success=i < 1) for i in range(4)]
    second = [Score(index=i, task=0, success=i < 3) for i in range(4)]
    comparison = compare(first, second)
    assert (comparison.first, comparison.second, comparison.tasks) == (0.25, 0.75, 1)
    assert comparison.interval is None


def test_rewards_are_compared_where_that_is_asked():
    first, second = scores(True, True), scores(True, True, rewards=[0.5, 1.5])
    assert compare(first, second).difference == 0.0
    assert compare(first, second, measure="reward").difference == 0.0
    assert compare(first, second, measure="reward").interval == (-0.5, 0.5)


def test_equal_differences_are_no_proof_of_no_spread():
    # 0.05^(1/100) = 0.97049: of 100 tasks all won, up to 2.951% of all may be lost instead.
    won = compare(scores(*[False] * 100), scores(*[True] * 100))
    assert won.interval == pytest.approx((1 - 2 * 0.02951, 1.0), abs=1e-5)
    same = compare(scores(*[False] * 100), scores(*[False] * 100))
    assert (same.interval, same.p_value) == (pytest.approx((-0.02951, 0.02951), abs=1e-5), 1.0)
    # Rewards have no bounds.
    paid = compare(
        scores(*[True] * 100), scores(*[True] * 100, rewards=[3.5] * 100), measure="reward"
    )
    assert (paid.difference, paid.interval) == (2.5, None)
    assert paid.unseen == pytest.approx(0.02951, abs=1e-5)


def test_a_board_says_that_rewards_show_no_spread():
    (board,) = boards([run("a", 1, 1), run("b", 0, 0)], measure="reward")
    # 1 - 0.05^(1/2) = 0.776.
    assert board_lines(board) == [
        "a: no spread in 2 tasks; up to 77.6% of all tasks may differ by another amount (95%)"
    ]
    assert board_table(board)[2][5:7] == ("-1.000", "-")


def test_runs_without_a_task_in_common_are_refused():
    with pytest.raises(ConfigError, match="share no task: play both with the same --seed"):
        compare([Score(index=0, task=0)], [Score(index=0, task=1)])


@pytest.mark.parametrize("count", [6, 11, 40])
def test_the_p_value_is_that_of_scipys_permutation_test(count):
    from scipy import stats

    differences = np.random.default_rng(count).normal(0.3, 1.0, size=count)
    theirs = stats.permutation_test(
        (differences,), np.sum, permutation_type="samples", n_resamples=65536, rng=0
    ).pvalue
    # Exact below 17; else two draws of 65,536 flips, whose p differ by at most 4 x 0.0028.
    tolerance = 1e-12 if count <= 16 else 0.011
    assert sign_flip_p_value(differences.tolist()) == pytest.approx(theirs, abs=tolerance)


@given(st.integers(1, 200).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_differences_of_one_size_are_tossed_as_a_coin(counts):
    from scipy import stats

    heads, tosses = counts
    differences = [0.25] * heads + [-0.25] * (tosses - heads)
    expected = stats.binomtest(heads, tosses).pvalue
    assert sign_flip_p_value(differences) == pytest.approx(expected, rel=1e-9)


FOUR = Setup(env_id="ludic/ConnectFour-v0")


def run(name, *successes, setup=FOUR, first=0, error=None):
    scores = [
        Score(index=i, task=first + i, success=s, reward=-float(s), error=error)
        for i, s in enumerate(successes)
    ]
    return Run(name=name, policy=f"model of {name}", scores={setup: scores})


def ranks(board):
    return [(standing.rank, standing.name) for standing in board.standings]


def test_equal_means_share_a_rank_and_the_next_one_is_skipped():
    (board,) = boards([run("c", 0, 0), run("a", 1, 0), run("b", 0, 1)])
    assert ranks(board) == [(1, "a"), (1, "b"), (3, "c")]


def test_the_measure_decides_the_order_and_the_numbers():
    (board,) = boards([run("a", 1, 0), run("b", 0, 0)], measure="reward")
    headings, best, second = board_table(board)
    assert headings[3] == "reward"
    assert best[:4] == ("b", "1", "2", "0.00")
    # a - b: -1 on the first task, 0 on the second.
    assert (second[3], second[5]) == ("-0.50", "-0.500")


def test_differences_are_from_the_named_run_or_from_the_best():
    runs = [run("a", 0, 0), run("b", 1, 0), run("c", 1, 1)]
    (named,), (best,) = boards(runs, baseline="b"), boards(runs)
    assert [s.difference and s.difference.difference for s in named.standings] == [0.5, None, -0.5]
    assert (named.baseline, best.baseline) == ("b", "c")


def test_a_run_without_a_finished_episode_is_the_last_and_has_no_rank():
    (board,) = boards([run("dead", 0, error="no reply"), run("alive", 0)])
    assert ranks(board) == [(1, "alive"), (None, "dead")]
    headings, _, dead = board_table(board)
    assert (headings[-1], dead[:3], dead[-1]) == ("failed", ("dead", "-", "0"), "1 (100.0%)")


def test_runs_of_other_tasks_have_ranks_but_no_difference():
    (board,) = boards([run("a", 1, 1), run("b", 0, 1, first=50)])
    assert board_table(board)[2] == ("b", "2", "2", "50.0%", "[9.5, 90.5]", "-", "-", "-")


@pytest.mark.parametrize("other", [{"kwargs": '{"seat": "second"}'}, {"data": "gsm8k@0123"}])
def test_other_arguments_or_rows_are_another_board(other):
    found = boards([run("a", 1), run("b", 0, setup=Setup(env_id="ludic/ConnectFour-v0", **other))])
    assert [ranks(board) for board in found] == [[(1, "a")], [(1, "b")]]
    assert len({str(board.setup) for board in found}) == 2


def test_the_json_has_the_numbers_of_the_table():
    (board,) = boards_json(boards([run("a", 1, 0), run("b", 0, 0)]))
    first, second = board["runs"]
    assert (board["env"], board["baseline"], first["result"]["successes"]) == (
        "ludic/ConnectFour-v0",
        "a",
        1,
    )
    assert second["difference"]["difference"] == -0.5
