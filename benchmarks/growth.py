"""Growth of costs over the turns of an episode: memory, records, rows, time in the event loop.

    python benchmarks/growth.py

Each turn adds 100 tokens to the dialog, half of them sampled. They are words with frequencies of a
language, each a token of a vocabulary of 150,000, and the log-probs are any of 32 bits. An exponent
of 1 is linear growth.
"""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import math
import struct
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from functools import cache, partial
from itertools import accumulate, pairwise
from random import Random
from statistics import median
from typing import Any

import ludic_gym as lg
import ludic_train as lt
from ludic_gym.envs.core.base import Turn, end, proceed
from ludic_gym.prompts import ExactPrompts, Render
from ludic_gym.records import episode_from_json, record_line
from ludic_gym.types import Completion, Episode, Message, Rollout, Sampling, Task
from ludic_train.models.chat_template import chat_renderer

TOKENS = 100
TURNS = (10, 100, 1000)
VOCABULARY = 150_000
# Tokens of a message beside its text: two or three in the dialects of most models.
END, ROLES = 0, {"system": 1, "user": 2, "assistant": 3}


@cache
def words() -> tuple[list[str], list[float], dict[str, int]]:
    """Words, their frequencies added up, and their tokens."""
    rng, syllables = Random(0), [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]
    texts = list({"".join(rng.choices(syllables, k=rng.randint(1, 2))) for _ in range(12_000)})
    texts.sort(key=lambda text: (len(text), text))
    ids = rng.sample(range(10, VOCABULARY), len(texts))
    weights = accumulate(1 / (rank + 2.7) for rank in range(len(texts)))
    return texts, list(weights), dict(zip(texts, ids, strict=True))


def drawn(rng: Random, count: int) -> str:
    """A text of so many words."""
    texts, weights, _ = words()
    return " ".join(rng.choices(texts, cum_weights=weights, k=count))


def encoded(text: str) -> list[int]:
    """A token per word; those of others, such as parts of words, are a few."""
    ids = words()[2]
    return [ids.get(word, 4 + ord(word[0]) % 6) for word in text.split()]


def render(messages: Sequence[Message], reply_comes: bool) -> list[int]:
    """A chat template over words."""
    parts = [[ROLES[m["role"]], *encoded(m["content"] or ""), END] for m in messages]
    return [id for part in parts for id in part] + [ROLES["assistant"]] * reply_comes


class Talk(lg.TextEnv):
    """Says half of the tokens of a turn, of which a message's own are three and a reply's one."""

    def __init__(self, turns: int) -> None:
        self.turns = turns

    def start(self, options: Mapping[str, Any] | None) -> tuple[str, str]:
        """The first words."""
        self.said, self.rng = 0, Random(0)
        return drawn(self.rng, TOKENS // 2 - 3), ""

    def turn(self, action: str) -> Turn:
        """The next words."""
        self.said += 1
        if self.said == self.turns:
            return end(reward=1.0, success=True)
        return proceed(drawn(self.rng, TOKENS // 2 - 3))


class Words:
    """A chat client whose model takes no time: texts are drawn, and prompts made as any others."""

    def __init__(
        self, template: Render = render, encode: Callable[[str], list[int]] = encoded
    ) -> None:
        self.prompts, self.encode, self.rng = ExactPrompts(template), encode, Random(1)
        self.starts: list[float] = []

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, tools: Sequence[lg.ToolSchema] = ()
    ) -> Completion:
        """Half of the tokens of a turn."""
        prompt = self.prompts.token_ids(messages)
        text = drawn(self.rng, TOKENS // 2 - 1)
        ids = [*self.encode(text), END]
        logprobs = struct.unpack(
            f"{len(ids)}f", struct.pack(f"{len(ids)}f", *(-self.rng.expovariate(2) for _ in ids))
        )
        self.starts.append(time.process_time())
        return Completion(
            text=text,
            finish_reason="stop",
            sampling=sampling,
            prompt_ids=prompt,
            completion_ids=ids,
            logprobs=logprobs,
            policy_version=3,
        )


def played(turns: int, client: Words) -> Rollout:
    """An episode of so many turns."""
    task = Task(env_id="talk", seed=1, max_turns=turns, sampling=Sampling(seed=1))
    return asyncio.run(lg.run_episode(Talk(turns), lg.ChatPolicy(client), task))


@dataclass(frozen=True)
class Figures:
    """Costs of an episode per token of its dialog.

    memory: bytes that the rollout holds. record: bytes of its line, packed as training runs do.
    written, read, rows: microseconds of writing the line, reading it, and making rows.
    turn: microseconds per turn of playing.
    """

    turns: int
    memory: float
    record: float
    written: float
    read: float
    rows: float
    turn: float


def figures(turns: int) -> Figures:
    """The costs at so many turns."""
    words()
    tracemalloc.start()
    rollout = played(turns, Words())
    gc.collect()
    memory = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    episode = Episode(index=0, task=rollout.task, rollouts=(rollout,))
    line = record_line(episode, {})
    if episode_from_json(json.loads(line)) != episode:
        raise ValueError(f"an episode of {turns} turns is not read back")
    tokens = turns * TOKENS
    return Figures(
        turns=turns,
        memory=memory / tokens,
        record=len(gzip.compress(line, 1)) / tokens,
        written=1e6 * seconds(lambda: record_line(episode, {})) / tokens,
        read=1e6 * seconds(lambda: episode_from_json(json.loads(line))) / tokens,
        rows=1e6 * seconds(lambda: lt.rows_from([rollout], lt.reinforce())) / tokens,
        turn=1e6 * seconds(partial(played, turns, Words())) / turns,
    )


def seconds(work: Callable[[], object]) -> float:
    """CPU-seconds of the work, the best of several times that take a tenth of a second together."""
    best, total = math.inf, 0.0
    while total < 0.1:
        start = time.process_time()
        work()
        best, total = min(best, taken := time.process_time() - start), total + taken
    return best


def exponent(small: Figures, large: Figures, name: str) -> float:
    """Exponent of the growth of the whole cost with the number of turns."""
    ratio = getattr(large, name) / getattr(small, name)
    return 1 + math.log(ratio) / math.log(large.turns / small.turns)


@dataclass(frozen=True)
class Loop:
    """Milliseconds in the event loop per turn, with a real chat template and tokenizer.

    tokens: of the last prompt. last: the middle one of the last fifty turns. mean: of all turns,
    with the checks against whole dialogs.
    """

    tokens: int
    last: float
    mean: float


def loop(turns: int = 360) -> Loop:
    """A dialog of 36,000 tokens."""
    text = drawn(Random(2), 50_000)
    tokenizer = lt.make_tokenizer([text], vocab_size=6_000)
    client = Words(chat_renderer(tokenizer), lambda text: tokenizer.encode(text))
    start = time.process_time()
    rollout = played(turns, client)
    whole = time.process_time() - start
    steps = [after - before for before, after in pairwise(client.starts)]
    (last,) = rollout.steps[-1].decision.completions
    return Loop(
        tokens=len(last.prompt_ids or ()),
        last=1e3 * median(steps[-50:]),
        mean=1e3 * whole / turns,
    )


def growth() -> tuple[list[Figures], dict[str, float]]:
    """The costs at 10, 100 and 1,000 turns, and the exponents between the first and the last."""
    figures(1)
    table = [figures(turns) for turns in TURNS]
    names = [field.name for field in fields(Figures)][1:]
    return table, {name: exponent(table[0], table[-1], name) for name in names}


def main() -> None:
    """Print the figures."""
    table, exponents = growth()
    print(" ".join(f"{field.name:>8s}" for field in fields(Figures)))
    for row in table:
        print(" ".join(f"{value:8.2f}" for value in astuple(row)))
    print(" ".join(["exponent", *(f"{value:8.2f}" for value in exponents.values())]))
    for turns in (1000, 4000):
        each = 1e6 * seconds(partial(played, turns, Words())) / turns
        print(f"playing {turns:,} turns: {each:.0f} microseconds a turn")
    turn = loop()
    print(
        f"in the loop at {turn.tokens:,} tokens: {turn.last:.2f} ms a turn; {turn.mean:.2f} ms on "
        "average, checks against whole dialogs included"
    )


if __name__ == "__main__":
    main()
