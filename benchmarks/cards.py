"""Write envs_registry/scores.json: scores of reference players and of a model, by environment.

    python benchmarks/cards.py [ID ...]                        # random, oracle, empty, hack
    python benchmarks/cards.py --model ludic-small [ID ...]    # the model's column alone

Scores of other environments and of other players stay as they are. A player has `EPISODES`
episodes, or those of `SECONDS`, `FEWEST` at least. "hack" is the fixed reply that does best on a
few seeds, on other seeds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from statistics import fmean
from typing import NamedTuple

from envs_registry.catalog import CATALOG
from envs_registry.scores import CARDS, PATH, Card
from ludic_gym.audit.scores import FIXED, FORMS
from ludic_gym.audit.subject import (
    AuditSubject,
    Play,
    Player,
    always,
    oracle,
    play,
    random_player,
    within,
)
from ludic_gym.bench.policies import open_policy
from ludic_gym.bench.runner import run_bench
from ludic_gym.policies.chat import MAX_LENGTH
from ludic_gym.types import Episode, MakePolicy, Sampling, Task

EPISODES, FEWEST, SECONDS = 200, 20, 4.0
MOST_TURNS = 1500
# Seeds of the trials of fixed replies, which no score uses.
TRIALS_FROM, TRIALS, TRIAL_SECONDS = 1_000_000, 8, 0.3
MODEL_EPISODES, MODEL_TURNS, MAX_TOKENS = 50, 50, 96
COPIES = ("the observation", "the prompt")


class OfModel(NamedTuple):
    """Scores of a model in one environment.

    score: successes and episodes. tokens: mean numbers of prompts and replies in an episode, None
        without an episode that began. outgrown: as of `Card`.
    """

    score: tuple[int, int]
    tokens: tuple[int, int] | None
    outgrown: int


def successes(played: list[Play]) -> tuple[int, int]:
    """Numbers of successes and of episodes."""
    return sum(p.success for p in played), len(played)


def plays(env_id: str, player: Callable[[int], Player], most: int, episodes: int) -> list[Play]:
    """Episodes of a player, made from each seed."""
    env, found = AuditSubject(env_id=env_id).make(), list[Play]()
    began = time.perf_counter()
    while len(found) < episodes and (len(found) < FEWEST or time.perf_counter() - began < SECONDS):
        found.append(play(env, len(found), player(len(found)), most))
    env.close()
    return found


def copied(name: str) -> Player:
    """The player of the observation or of the system prompt."""
    if name == "the observation":
        return lambda env, observation: observation
    return lambda env, observation: str(getattr(env.unwrapped, "prompt", observation))


def hacks() -> dict[str, Player]:
    """Players that do not read the task, by their names."""
    texts = [*FIXED, *(form.format(text) for form in FORMS[1:] for text in FIXED[:6])]
    return {**{text: always(text) for text in texts}, **{name: copied(name) for name in COPIES}}


def best_hack(subject: AuditSubject) -> tuple[str, Player]:
    """The fixed reply with the most successes in trials; the first of equal ones."""
    env, rates = subject.make(), {}
    for name, player in hacks().items():
        seeds = within(range(TRIALS_FROM, TRIALS_FROM + TRIALS), TRIAL_SECONDS)
        tried = [play(env, seed, player, 50) for seed in seeds]
        rates[name] = sum(p.success for p in tried) / len(tried)
    env.close()
    best = max(rates, key=lambda name: rates[name])
    return best, hacks()[best]


def reference(env_id: str, episodes: int = EPISODES) -> Card:
    """The card with the scores of the reference players. Raises NoOracle without an oracle."""
    best = plays(env_id, lambda seed: oracle, MOST_TURNS, episodes)
    read = fmean(sum(map(len, p.observations)) for p in best)
    written = fmean(sum(map(len, p.actions)) for p in best)
    name, player = best_hack(AuditSubject(env_id=env_id))
    scores = {
        "random": successes(plays(env_id, random_player, MOST_TURNS, episodes)),
        "oracle": successes(best),
        "empty": successes(plays(env_id, lambda seed: always(""), 50, episodes)),
        "hack": successes(plays(env_id, lambda seed: player, 50, episodes)),
    }
    return Card(
        scores=scores, hack=name, characters=(round(read), round(written)), tokens={}, outgrown={}
    )


async def of_model(make_policy: MakePolicy, env_id: str, episodes: int) -> OfModel:
    """Scores of a model at temperature 0.

    An episode whose prompt is too long for the model has failed. Raises RuntimeError for any other
    error.
    """
    # Imported here: the reference players need no torch.
    from ludic_train.runs.tasks import EVALUATIONS_FROM

    sampling = Sampling(temperature=0.0, max_tokens=MAX_TOKENS)
    tasks = [
        Task(env_id=env_id, seed=EVALUATIONS_FROM + i, sampling=sampling, max_turns=MODEL_TURNS)
        for i in range(episodes)
    ]
    played = list[Episode]()
    result = await run_bench(tasks, make_policy, concurrency=64, on_episode=played.append)
    for _, error in result.errors:
        if not error.startswith("PromptTooLong"):
            raise RuntimeError(f"{env_id}: {error}")
    tokens, count = None, result.episodes
    if count and result.prompt_tokens is not None and result.completion_tokens is not None:
        tokens = round(result.prompt_tokens / count), round(result.completion_tokens / count)
    return OfModel((result.successes, len(tasks)), tokens, sum(map(is_outgrown, played)))


def is_outgrown(episode: Episode) -> bool:
    """True for an episode that ended because a prompt was too long for the model."""
    return episode.error is not None or any(
        step.decision.give_up == MAX_LENGTH for each in episode.rollouts for step in each.steps
    )


async def measure_model(spec: str, ids: list[str], cards: dict[str, Card], episodes: int) -> None:
    """Add the scores of a model to the cards of the environments, and write them."""
    async with open_policy(spec) as make_policy:
        for env_id in ids:
            card = cards[env_id]
            found = await of_model(make_policy, env_id, episodes)
            cards[env_id] = replace(
                card,
                scores={**card.scores, spec: found.score},
                tokens={**card.tokens, **({spec: found.tokens} if found.tokens else {})},
                outgrown={**card.outgrown, spec: found.outgrown},
            )
            print(env_id, cards[env_id].scores, file=sys.stderr)
            write(cards)


def write(cards: Mapping[str, Card]) -> None:
    """Replace the file: a line per environment, in the catalogue's order."""
    lines = (
        f"{json.dumps(entry.id)}: {json.dumps(asdict(cards[entry.id]))}"
        for entry in CATALOG
        if entry.id in cards
    )
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def main() -> None:
    """Measure, and write the file after each environment."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ids", nargs="*")
    parser.add_argument("--model", default="")
    parser.add_argument("--model-episodes", type=int, default=MODEL_EPISODES)
    arguments = parser.parse_args()
    ids, cards = arguments.ids or [entry.id for entry in CATALOG], dict(CARDS)
    if arguments.model:
        asyncio.run(measure_model(arguments.model, ids, cards, arguments.model_episodes))
        return
    for env_id in ids:
        card = reference(env_id)
        # Scores of models are measured by themselves.
        old = cards.get(env_id, card)
        scores = {**old.scores, **card.scores}
        cards[env_id] = replace(card, scores=scores, tokens=old.tokens, outgrown=old.outgrown)
        print(env_id, cards[env_id].scores, file=sys.stderr)
        write(cards)


if __name__ == "__main__":
    main()
