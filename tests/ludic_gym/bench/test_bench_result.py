import math
from dataclasses import replace
from itertools import permutations

import pytest

from ludic_gym.bench.report import figure_lines, result_table
from ludic_gym.bench.result import Price, Score, Tally, score
from ludic_gym.types import Completion, Decision, Episode, ModelCall, Rollout, Step, Task

TASK = Task(env_id="ludic/Arithmetic-v0")
UNTOLD = Completion(text="5", finish_reason="stop")


def step(reward=0.0, ids=(), finish="stop", **rest):
    completion = Completion(text="5", finish_reason=finish, completion_ids=tuple(ids))
    decision = Decision(action="5", completions=(completion,))
    return Step(observation="?", decision=decision, reward=reward, **rest)


def ended(index, *steps):
    return Episode(index=index, task=TASK, rollouts=(Rollout(task=TASK, steps=steps),))


def test_a_score_adds_up_the_episode():
    first = step(0.25, ids=(1, 2, 3))
    last = step(1.0, ids=(4, 5), terminated=True, info={"success": True, "outcome": "win"})
    numbers = score(ended(7, first, last))
    assert (numbers.index, numbers.success, numbers.reward) == (7, True, 1.25)
    assert (numbers.outcome, numbers.turns, numbers.completion_tokens) == ("win", 2, 5)


def test_tokens_that_a_server_did_not_tell_are_not_counted_as_none_at_all():
    untold = replace(step(), decision=Decision(action="5", completions=(UNTOLD,)))
    silent, told = score(ended(0, step(ids=(1, 2)), untold)), score(ended(1, step(ids=(1, 2))))
    assert (silent.completion_tokens, told.completion_tokens) == (None, 2)
    assert Tally([silent, told]).result().completion_tokens is None
    assert Tally([told]).result().completion_tokens == 2


def served(index, *usages, model="m-1"):
    calls = (ModelCall(model=model, usage=usage) for usage in usages)
    completions = (Completion(text="", finish_reason="stop", call=call) for call in calls)
    decision = Decision(action="5", completions=tuple(completions))
    return ended(index, replace(step(), decision=decision))


def test_a_result_names_the_served_model_its_tokens_and_its_cost():
    counts = {"prompt_tokens": 1000, "completion_tokens": 500}
    # By price: (2 * 1000 * 3 + 2 * 500 * 10) / 1e6 = 0.016; the server states 0.5 itself.
    priced = score(served(0, counts, counts), Price(3.0, 10.0))
    stated = score(served(1, counts | {"cost": 0.5}), Price(3.0, 10.0))
    result = Tally([priced, stated]).result()
    assert (result.model, result.prompt_tokens, result.completion_tokens) == ("m-1", 3000, 1500)
    assert (priced.cost, result.cost) == (0.016, 0.516)
    assert figure_lines({"e": result}) == ["e: model m-1, 3,000 + 1,500 tokens, cost 0.5160"]


def test_tokens_from_a_cache_have_a_price_of_their_own():
    counts = {"prompt_tokens": 1000, "completion_tokens": 500, "cached_tokens": 800}
    # (200 * 3 + 800 * 0.5 + 500 * 10) / 1e6, and without that price (1000 * 3 + 500 * 10) / 1e6.
    assert score(served(0, counts), Price(3.0, 10.0, 0.5)).cost == 0.006
    assert score(served(0, counts), Price(3.0, 10.0)).cost == 0.008


def test_a_cost_or_a_count_that_is_unknown_is_no_zero():
    free, silent = score(served(0, {"prompt_tokens": 3})), score(served(1, {"cost": None}))
    assert (free.prompt_tokens, free.completion_tokens, free.cost) == (3, None, None)
    assert (silent.prompt_tokens, silent.cost) == (None, None)
    assert figure_lines({"e": Tally([silent]).result()}) == ["e: model m-1"]
    # A policy without a model has sent no tokens.
    assert figure_lines({"e": Tally([score(ended(0, step()))]).result()}) == []


@pytest.mark.parametrize(
    ("last", "word"),
    [
        (step(terminated=True, info={"success": True}), "success"),
        (step(terminated=True, info={"success": False}), "failure"),
        (step(truncated=True), "truncated"),
        (step(terminated=True, info={"success": False, "outcome": "illegal"}), "illegal"),
    ],
)
def test_the_outcome_is_the_envs_word_or_a_plain_one(last, word):
    assert score(ended(0, last)).outcome == word


def test_an_env_that_says_nothing_of_success_has_no_rate():
    # The third by a limit of turns, which is no success in any case.
    ends = [step(0.5, terminated=True), step(1.0, terminated=True), step(0.0, truncated=True)]
    scores = [score(ended(i, one)) for i, one in enumerate(ends)]
    assert [s.success for s in scores] == [None, None, False]
    result = Tally(scores).result()
    assert math.isnan(result.success_rate)
    assert (result.successes, result.mean_reward, result.pass_at_k) == (0, 0.5, ())
    assert result_table({"e": result})[1][1:5] == ("-/3", "-", "-", "0.50")


def test_a_result_on_the_sample_has_a_note():
    asked = [step(terminated=True, info={"data": name}) for name in ("sample@01", "rows.jsonl@01")]
    sample, real = (Tally([score(ended(0, one))]).result() for one in asked)
    assert sample.note.startswith("sample: a few home-made questions, not the data set")
    assert real.note == ""


def test_results_count_failed_episodes_apart():
    good = ended(0, step(1.0, terminated=True, info={"success": True}))
    bad = ended(1, step(-1.0, terminated=True, info={"success": False}))
    broken = Episode(index=2, task=TASK, error="boom")
    result = Tally([score(episode) for episode in (good, bad, broken)]).result()
    assert (result.episodes, result.successes, result.success_rate) == (2, 1, 0.5)
    assert result.mean_reward == 0.0
    assert result.errors == ((2, "boom"),)
    assert result.outcomes == {"success": 1, "failure": 1}


def test_replies_that_hit_the_token_limit_are_counted():
    cut, whole = step(finish="length"), step(terminated=True, info={"success": False})
    result = Tally([score(ended(0, cut, whole)), score(ended(1, whole))]).result()
    assert result.cut_off == 1


def test_results_do_not_depend_on_the_order_of_completion():
    rewards = (0.1, 0.2, 0.3, 1e16)
    scores = [
        score(ended(i, step(r, terminated=True, info={"success": True})))
        for i, r in enumerate(rewards)
    ]
    results = [Tally(order).result() for order in permutations(scores)]
    assert all(result == results[0] for result in results)


def test_nothing_measured_is_nan_and_no_interval():
    result = Tally([score(Episode(index=0, task=TASK, error="boom"))]).result()
    assert result.episodes == 0
    assert math.isnan(result.success_rate)
    assert math.isnan(result.mean_reward)
    assert result.reward_interval is None
    assert result.success_interval == (0.0, 1.0)


def test_pass_at_k_is_averaged_over_tasks_up_to_the_fewest_samples():
    # Task 0: 1 of 2; task 1: 2 of 3. pass@1 (1/2 + 2/3) / 2, pass@2 (1 + 1) / 2,
    # pass^2 (0 + 1/3) / 2.
    wins = [(0, True), (0, False), (1, True), (1, True), (1, False)]
    result = Tally(Score(index=i, task=t, success=w) for i, (t, w) in enumerate(wins)).result()
    assert result.pass_at_k == pytest.approx((7 / 12, 1.0))
    assert result.pass_hat_k == pytest.approx((7 / 12, 1 / 6))
    assert (result.tasks, result.episodes) == (2, 5)


def test_outcomes_as_frequent_as_each_other_are_in_the_order_of_words():
    scores = [Score(index=i, task=i, outcome=word) for i, word in enumerate("cabab")]
    assert list(Tally(scores).result().outcomes.items()) == [("a", 2), ("b", 2), ("c", 1)]
    assert list(Tally(scores[::-1]).result().outcomes) == ["a", "b", "c"]
