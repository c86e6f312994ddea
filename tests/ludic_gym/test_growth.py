"""Costs of an episode grow with its turns, and not with their square."""

import gc
import json
import tracemalloc
from itertools import count

import ludic_gym as lg
from ludic_gym.envs.core.base import TextEnv, proceed
from ludic_gym.records import episode_from_json, record_line
from ludic_gym.types import Completion, Episode, ModelCall, Task

TOKENS = 100


class Endless(TextEnv):
    def start(self, options):
        return "x" * 50, ""

    def turn(self, action):
        return proceed("x" * 50)


class WholePrompts:
    """Hands over whole prompts and requests, as clients of servers do that render themselves."""

    def __init__(self):
        self.numbers, self.ids = count(), []

    async def complete(self, messages, sampling, tools=()):
        self.ids += [next(self.numbers) for _ in range(TOKENS // 2)]
        prompt = tuple(self.ids)
        reply = tuple(next(self.numbers) for _ in range(TOKENS // 2))
        self.ids += reply
        return Completion(
            text="y" * 50,
            finish_reason="stop",
            prompt_ids=prompt,
            completion_ids=reply,
            logprobs=[-0.5] * len(reply),
            call=ModelCall(model="m", messages=tuple(map(dict, messages))),
        )


async def costs(turns):
    """Bytes per token that the rollout holds, and that its record has."""
    task = Task(env_id="e", max_turns=turns)
    tracemalloc.start()
    rollout = await lg.run_episode(Endless(), lg.ChatPolicy(WholePrompts()), task)
    gc.collect()
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    episode = Episode(index=0, task=task, rollouts=(rollout,))
    line = record_line(episode, {})
    assert episode_from_json(json.loads(line)) == episode
    return held / turns / TOKENS, len(line) / turns / TOKENS


async def test_an_episode_is_held_and_recorded_in_bytes_per_token_whatever_its_length():
    await costs(3)
    (held, record), (held_long, record_long) = await costs(20), await costs(200)

    # Whole prompts would take 40 times as many as 20 for each token of 200 turns.
    assert held_long < 1.1 * held
    assert held_long < 40
    assert record_long < 1.2 * record
