import pytest

from ludic_gym.bench.comparison import Run, Setup, board_table, boards, boards_json
from ludic_gym.bench.result import Score

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
    assert (headings[-1], dead) == ("failed", ("dead", "-", "0", "-", "-", "-", "-", "-", "1"))


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
