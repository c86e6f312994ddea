"""Checks of what is asked: enough different tasks, and none of the training split in the test one.

Tasks are compared by what a player sees: by the first observation where one reply ends the episode,
else also by some turns, since hidden tasks show a difference only in their answers. Games of two
splits count as equal if the states of their environments are equal too.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ludic_gym.audit.subject import (
    AuditSubject,
    Check,
    Result,
    always,
    has_oracle,
    in_budget,
    legal_at_start,
    oracle,
    play,
    random_player,
)
from ludic_gym.concurrency import Caught
from ludic_gym.envs.core.base import TextEnv
from ludic_gym.types import Env

SEEDS, SPLIT_SEEDS, GAME_SEEDS = 64, 1500, 250
# Turns after which two games are taken for one.
TURNS = 20
# Different tasks that an environment has if none are stated, and the share of them that must come.
MANY, FEWEST = 32, 0.5
_NO_STATE = re.compile("split|generator|seed|random|spec")
_OPTION = re.compile(r"^\W?[A-Ja-j1-9][.):]\s")


def tasks_are_many(subject: AuditSubject) -> Result:
    """Seeds play as many different tasks as the environment states; 32 if it states none.

    Of T tasks that are drawn N times, T (1 - (1 - 1/T)^N) are expected; over half of them must
    come.
    """
    env, stated = subject.make(), subject.statement.tasks
    if stated is None and isinstance(env.unwrapped, TextEnv):
        stated = env.unwrapped.num_rows
    asked = list(asked_by(subject, env, range(SEEDS)))
    different, count = len({*asked}), len(asked)
    # A game with moves that are listed may have one board, and differ by its other players alone.
    drawn = stated or (2 if legal_at_start(subject) else MANY)
    expected = drawn * (1 - (1 - 1 / drawn) ** count)
    evidence = {"seeds": count, "different": different, "stated": stated}
    summary = f"{count} seeds play {different} different tasks"
    if stated == 1:
        return ("pass" if different > 1 else "not judged"), f"{summary}; one is stated", evidence
    if different > FEWEST * expected:
        return "pass", summary, evidence
    if different == 1 and not has_oracle(subject) and not is_seen_at_once(subject):
        return "not judged", "random texts find no difference; it has no legal actions", evidence
    return (
        "fail",
        f"{summary}, expected are {expected:.0f} of {drawn} or more; are there fewer (--tasks)?",
        evidence,
    )


def splits_are_apart(subject: AuditSubject) -> Result:
    """No task of the split "test" is in the split "train", by what is asked and not by the seed."""
    tasks = dict[str, dict[str, int]]()
    for split in ("train", "test"):
        of_split = replace(subject, kwargs={**subject.kwargs, "split": split})
        with Caught(Exception) as failure:
            env = of_split.make()
        if failure.error is not None:
            return "not judged", f"it has no split {split!r}: {failure.text[:60]}", {}
        single = is_seen_at_once(subject)
        seeds = in_budget(range(SPLIT_SEEDS if single else GAME_SEEDS), subject.budget_s)
        texts = [*asked_by(of_split, env, seeds, with_state=not single)]
        if single:
            texts = without_template(texts)
        tasks[split] = {text: seed for seed, text in enumerate(texts)}
    counts = {split: len(found) for split, found in tasks.items()}
    common = [text for text in tasks["test"] if text in tasks["train"]]
    summary = f"{counts['train']} train and {counts['test']} test tasks: {len(common)} equal"
    if common:
        seeds_of = {split: found[common[0]] for split, found in tasks.items()}
        return "fail", summary, {**counts, "task": common[0][:1000], "seeds": seeds_of}
    return "pass", summary, counts


def asked_by(
    subject: AuditSubject, env: Env, seeds: Iterable[int], with_state: bool = False
) -> Iterator[str]:
    """The task of each seed as a text that equal tasks have in common."""
    single, knows = is_seen_at_once(subject), has_oracle(subject)
    changing = _changing(env) if with_state else frozenset[str]()
    for seed in seeds:
        text = plain_task(str(env.reset(seed=seed)[0]))
        if single:
            yield text
            continue
        states = state_of(env) if with_state else {}
        state = [f"{name}: {value}" for name, value in states.items() if name not in changing]
        episode = play(env, seed, oracle if knows else random_player(0), TURNS)
        # Actions too: those of an oracle name what is hidden.
        turns = zip(episode.actions, episode.observations[1:], strict=True)
        yield "\n".join([text, *state, *(f"> {action}\n{seen}" for action, seen in turns)])


def state_of(env: Env) -> dict[str, str]:
    """A hash of each attribute of an environment but its generators, its split and its spec."""
    states = {}
    for name, value in vars(env.unwrapped).items():
        buffer = io.BytesIO()
        pickler = pickle.Pickler(buffer)
        # Without references to what was pickled before: equal texts need not be one object.
        pickler.fast = True
        with Caught(Exception):
            if not _NO_STATE.search(name):
                pickler.dump(value)
                states[name] = hashlib.blake2b(buffer.getvalue(), digest_size=16).hexdigest()
    return states


def _changing(env: Env) -> frozenset[str]:
    """Attributes that two resets with one seed leave in different states, such as counters."""
    first, again = (env.reset(seed=0) and state_of(env) for _ in range(2))
    return frozenset(name for name in first if first[name] != again.get(name))


def is_seen_at_once(subject: AuditSubject) -> bool:
    """True if a reply ends the episode, so that the first observation has all that is asked."""
    return subject.once("single", lambda: _ends_at_once(subject))


def _ends_at_once(subject: AuditSubject) -> bool:
    if legal_at_start(subject):
        return False
    plays = subject.oracle_plays() or [play(subject.make(), 0, always("x"), 2)]
    return all(len(one.actions) == 1 for one in plays)


def plain_task(text: str) -> str:
    r"""A task without its letters' case, its spaces, and the order and the letters of its options.

    >>> plain_task("Which  one?\nA. Lima\nB. Rome") == plain_task("WHICH one?\nA. Rome\nB. Lima")
    True
    """
    lines = [" ".join(line.split()) for line in text.casefold().splitlines()]
    options = sorted(_OPTION.sub("", line) for line in lines if _OPTION.match(line))
    others = [line for line in lines if not _OPTION.match(line)]
    return "\n".join([*others, *options]).strip()


def without_template(tasks: Sequence[str]) -> list[str]:
    """The tasks without the first and the last words that all of them have in common.

    >>> without_template(["What is 2 + 3 in all?", "What is 4 + 7 in all?"])
    ['2 + 3', '4 + 7']
    """
    words = [task.split() for task in tasks]
    for _ in range(2):
        shortest = min(map(len, words), default=0)
        common = next((i for i in range(shortest) if len({task[i] for task in words}) > 1), 0)
        words = [task[common:][::-1] for task in words]
    return [" ".join(task) for task in words]


TASK_CHECKS: dict[str, Check] = {
    "tasks/different": tasks_are_many,
    "tasks/splits": splits_are_apart,
}
