from rich.console import Console

from ludic_gym.bench import BenchResult, Interval
from ludic_gym.bench.report import cut_off_lines, error_lines, result_table


def result(**changes):
    numbers = {
        "episodes": 4,
        "successes": 1,
        "success_rate": 0.25,
        "success_interval": Interval(0.046, 0.699),
        "mean_reward": -0.5,
        "reward_interval": Interval(-1.48, 0.48),
    }
    return BenchResult(**numbers | changes)


def shown(results):
    console = Console(width=80)
    with console.capture() as capture:
        console.print(result_table(results, policy="[bold]x[/bold]"))
    return capture.get()


def test_a_line_gives_counts_rates_and_intervals():
    *_, line = shown({"ludic/TicTacToe-v0": result()}).splitlines()
    words = ["ludic/TicTacToe-v0", "1/4", "25.0%", "[4.6,", "69.9]", "-0.50", "[-1.48,", "0.48]"]
    assert line.split() == [*words, "0"]


def test_where_nothing_ended_the_line_has_dashes():
    empty = result(episodes=0, successes=0, reward_interval=None, errors=((0, "boom"),))
    *_, line = shown({"e": empty}).splitlines()
    assert line.split() == ["e", "0/0", "-", "-", "-", "-", "1"]


def test_names_are_shown_as_they_are_written():
    assert "policy: [bold]x[/bold]" in shown({"[red]e": result()})
    assert "[red]e" in shown({"[red]e": result()})


def test_failures_with_the_same_reason_share_a_line():
    errors = (*((i, "boom") for i in range(7)), (7, "bang"))
    assert error_lines({"e": result(errors=errors)}) == [
        "e, episode 0, 1, 2, 3, 4 and 2 more: boom",
        "e, episode 7: bang",
    ]


def test_ten_reasons_are_shown_and_the_rest_counted():
    lines = error_lines({"e": result(errors=tuple((i, f"boom {i}") for i in range(12)))})
    assert lines[9:] == ["e, episode 9: boom 9", "e: 2 more reasons"]


def test_cut_off_replies_are_told_with_the_option_that_helps():
    lines = cut_off_lines({"a": result(cut_off=3), "b": result()})
    assert lines == ["a: 3 replies ran into the token limit; see --max-tokens"]
