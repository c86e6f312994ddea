"""The first look at a run's episodes, and the floors below which it stops."""

import asyncio
import json
from itertools import islice
from pathlib import Path

import pytest

import ludic_train as lt
from ludic_gym.parsers import xml_tag_parser
from ludic_gym.policies.chat import ChatPolicy
from ludic_gym.policies.wrappers import Parsed
from ludic_gym.types import Completion
from ludic_train.errors import CannotLearn, Collapsed
from ludic_train.metrics import Stat
from ludic_train.runs.config import RunConfig
from ludic_train.runs.preflight import check_preflight, lines, preflight
from ludic_train.runs.recipe import recipe_for
from ludic_train.runs.rewards import rewarded
from ludic_train.runs.run import UPDATES, Floors
from ludic_train.runs.tasks import training_tasks

RECIPE = recipe_for(["ludic/Arithmetic-v0"], env_kwargs={"split": "train"}, model="m")
CONFIG = RECIPE.defaults


class Says:
    """A model that always says this, in three tokens."""

    def __init__(self, text, finish_reason):
        self.text, self.finish_reason = text, finish_reason

    async def complete(self, messages, sampling, tools=()):
        said = self.text(sampling) if callable(self.text) else self.text
        return Completion(
            text=said, finish_reason=self.finish_reason, prompt_ids=(1,), completion_ids=(1, 2, 3)
        )


def replying(text, finish_reason="stop"):
    return lambda env: ChatPolicy(Says(text, finish_reason))


async def look(make_policy, groups=4):
    tasks = list(islice(training_tasks(RECIPE, CONFIG, 0), groups))
    return await preflight(tasks, make_policy, 4)


async def test_what_is_seen_is_counted():
    found = await look(replying("<answer>7</answer>"))
    assert (found.episodes, found.groups, found.differing, found.failed) == (16, 4, 0, 0)
    assert (found.replies, found.cut, found.turns, found.without_action) == (16, 0, 16, 0)
    assert found.tokens == 48


async def test_rewards_of_the_run_s_own_are_those_that_are_compared():
    async def by_seed(rollout):
        return rewarded(rollout, float(rollout.task.sampling.seed % 2))

    tasks = list(islice(training_tasks(RECIPE, CONFIG, 0), 4))
    found = await preflight(tasks, replying("no answer"), 4, score=by_seed)
    assert found.without_action == found.turns
    assert found.differing > 0
    check_preflight(found, CONFIG)


async def test_groups_that_differ_are_counted():
    # Every second member of a group answers; none is right, and a tag is worth a reward.
    def sometimes(sampling):
        return "<move>7</move>" if sampling.seed % 2 else "7"

    found = await look(
        lambda env: Parsed(replying(sometimes)(env), xml_tag_parser("move", success_reward=0.1))
    )
    assert 0 < found.differing <= found.groups == 4


async def test_replies_that_are_cut_end_a_run_that_cannot_learn():
    found = await look(replying("Let me think", "length"))
    assert "16 of 16 replies reached 256 tokens: raise --max-tokens" in "\n".join(
        lines(found, CONFIG)
    )
    with pytest.raises(CannotLearn, match=r"raise --max-tokens.*--no-preflight"):
        check_preflight(found, CONFIG)


@pytest.mark.parametrize("parser", [None, xml_tag_parser("answer")])
async def test_replies_without_an_answer_end_it_too_wherever_the_answer_is_sought(parser):
    def make(env):
        policy = replying("I do not know")(env)
        return Parsed(policy, parser) if parser else policy

    found = await look(make)
    assert found.without_action == found.turns > 0
    with pytest.raises(CannotLearn, match="have no action: use --parser last-number"):
        check_preflight(found, CONFIG)


async def test_a_hard_task_is_not_refused():
    found = await look(replying("<answer>-1</answer>"))
    check_preflight(found, CONFIG)
    assert "rewards are equal within each of the 4 groups (too hard)" in "\n".join(
        lines(found, CONFIG)
    )


async def test_a_look_ends_in_time():
    class Slow(Says):
        async def complete(self, messages, sampling, tools=()):
            await asyncio.sleep(sampling.seed % 2 * 30)
            return await super().complete(messages, sampling, tools)

    tasks = list(islice(training_tasks(RECIPE, CONFIG, 0), 4))
    slow = Slow("<answer>-1</answer>", "stop")
    found = await preflight(tasks, lambda env: ChatPolicy(slow), 4, limit_s=0.2)
    assert found.seconds < 15
    assert found.episodes >= 1
    assert found.episodes - found.failed < 4 * 4
    check_preflight(found, CONFIG)


def test_a_run_that_cannot_learn_ends_before_its_first_update(tmp_path):
    options = {"demonstrations": 150, "sft_updates": 1, "updates": 1, "eval_episodes": 4}
    with pytest.raises(CannotLearn, match="have no action"):
        lt.train("ludic/Arithmetic-v0", out=tmp_path / "run", parser="xml:no", form="{}", **options)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    metrics = [json.loads(line) for line in lines]
    assert "eval/test/success" in metrics[0]
    assert metrics[0]["update"] == 0
    assert metrics[-1]["update"] == 1


def metrics_of(**numbers):
    return {name: Stat(value, 1) for name, value in numbers.items()}


def test_entropy_or_reward_below_its_floor_for_ten_updates_ends_a_run():
    floors = Floors(RunConfig(out=Path("r")).changed(least_entropy=0.5))
    for _ in range(UPDATES):
        floors(metrics_of(entropy=0.6, reward=0.0))
    for _ in range(UPDATES // 2):
        floors(metrics_of(entropy=0.45, reward=0.0))

    def fall():
        for _ in range(UPDATES):
            floors(metrics_of(entropy=0.3, reward=0.0))

    with pytest.raises(Collapsed, match=r"entropy was 0\.4.* below least_entropy=0\.5"):
        fall()
