import math

import pytest

from ludic_gym.bench.report import (
    fault_lines,
    figure_lines,
    note_lines,
    progress_bar,
    result_table,
    spent_text,
)
from ludic_gym.bench.result import BenchResult, Price
from ludic_gym.bench.statistics import Interval
from ludic_gym.clients.attempts import Usage


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


def test_a_row_gives_counts_rates_and_intervals():
    headings, row = result_table({"ludic/TicTacToe-v0": result()})
    assert headings == ("env", "successes", "rate", "95%", "reward", "95%", "random", "legal")
    cells = ("1/4", "25.0%", "[4.6, 69.9]", "-0.50", "[-1.48, 0.48]", "30.0%", "-")
    assert row == ("ludic/TicTacToe-v0", *cells)


def test_where_nothing_ended_the_row_has_dashes():
    empty = result(
        episodes=0,
        successes=0,
        success_rate=math.nan,
        reward_interval=None,
        errors=((0, "boom"),),
    )
    assert result_table({"e": empty})[1] == ("e", "0/0", "-", "-", "-", "-", "-", "-", "1 (100.0%)")


def test_pass_at_k_is_shown_for_powers_of_two_and_all_samples():
    several = result(pass_at_k=(0.5, 0.625, 0.75, 0.8, 0.875), pass_hat_k=(0.5, 0.3, 0.2, 0.1, 0.0))
    assert figure_lines({"a": result(), "b": several}) == [
        "b: pass@k 50.0% at 1, 62.5% at 2, 80.0% at 4, 87.5% at 5; "
        "pass^k 50.0% at 1, 30.0% at 2, 10.0% at 4, 0.0% at 5"
    ]


def test_failures_with_the_same_reason_share_a_line():
    errors = (*((i, "boom") for i in range(7)), (7, "bang"))
    blames = {"environment": 1, "infrastructure": 7}
    assert fault_lines({"e": result(errors=errors, blames=blames)}) == [
        # 8 of 12, since 4 were finished.
        "e: 8 (66.7%) episodes were ended by environment (1) and infrastructure (7) and do not "
        "count; with --out, the same command plays them first",
        "e, episode 0, 1, 2, 3, 4 and 2 more: boom",
        "e, episode 7: bang",
    ]


def test_ten_reasons_are_shown_and_the_rest_counted():
    lines = fault_lines({"e": result(errors=tuple((i, f"boom {i}") for i in range(12)))})
    assert lines[10:] == ["e, episode 9: boom 9", "e: 2 more reasons"]


def test_cut_off_replies_are_told_with_the_option_that_helps():
    lines = fault_lines({"a": result(cut_off=3), "b": result()})
    assert lines == ["a: 3 replies ran into the token limit; see --max-tokens"]


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        ({"outcomes": {"too_long": 4}}, "no prompt fits into the model's context"),
        ({"outcomes": {"filtered": 4}, "illegal": 4}, "every reply was filtered"),
        ({"outcomes": {"refused": 4}, "illegal": 4}, "every reply is a refusal"),
        ({"turns": 6, "cut_off": 6, "illegal": 6}, "every reply was cut off before it ended"),
        ({"turns": 6, "empty": 6, "illegal": 6}, "every reply is empty"),
        ({"turns": 6, "illegal": 6}, "no reply has a legal action"),
        ({"turns": 6, "tool_calls": 0}, "no tool was called"),
    ],
)
def test_a_rate_of_zero_that_is_the_same_fault_everywhere_has_one_line_with_its_reason(
    numbers, reason
):
    numbers = {"successes": 0, "tool_calls": 3, **numbers}
    (line,) = fault_lines({"e": result(**numbers)}, with_tools={"e"})
    assert line.startswith(f"e: {reason}")


@pytest.mark.parametrize(
    "numbers",
    [
        {"turns": 6, "illegal": 5},
        {"successes": 1, "turns": 6, "illegal": 6},
        {"turns": 6, "tool_calls": 1},
        # A scripted player calls no model.
        {"turns": 6, "illegal": 6, "tool_calls": None},
    ],
)
def test_a_rate_that_other_replies_explain_has_no_such_line(numbers):
    numbers = {"successes": 0, "tool_calls": 3, **numbers}
    assert fault_lines({"e": result(**numbers)}, with_tools={"e"}) == []


def test_filtered_refused_and_long_ends_are_counted_in_a_line():
    some = result(outcomes={"success": 1, "filtered": 2, "too_long": 1}, tool_calls=0)
    assert fault_lines({"e": some}) == [
        "e: of 4 episodes, 2 filtered, 1 too_long; they are failures"
    ]


def test_a_score_on_the_bundled_sample_says_so():
    results = {"a/B-v0": result(note="home-made"), "c/D-v0": result()}
    _, sample, real = result_table(results)
    assert (sample[0], real[0]) == ("a/B-v0 (sample)", "c/D-v0")
    assert note_lines([*results.values(), result(note="home-made")]) == ["home-made"]


def test_tokens_are_told_with_their_cost_where_a_price_is_given():
    usage = Usage(prompt_tokens=1_500_000, completion_tokens=20_000)
    assert spent_text(usage, None) == "1,500,000 + 20,000 tokens"
    # 1.5 x 0.4 + 0.02 x 5
    assert spent_text(usage, Price(0.4, 5.0)) == "1,500,000 + 20,000 tokens, cost 0.70"
    # 0.5 x 0.4 + 1 x 0.1 + 0.02 x 5
    usage.cached_tokens = 1_000_000
    told = "1,500,000 (1,000,000 cached) + 20,000 tokens, cost 0.40"
    assert spent_text(usage, Price(0.4, 5.0, 0.1)) == told


def test_the_bar_says_how_many_requests_wait_while_they_do(capsys):
    usage = Usage(prompt_tokens=10, completion_tokens=2)
    with progress_bar("env", total=1, note=lambda: spent_text(usage, None)):
        # No episode has ended since.
        usage.waiting = 3
    assert "10 + 2 tokens, 3 wait for the busy server" in " ".join(capsys.readouterr().err.split())
