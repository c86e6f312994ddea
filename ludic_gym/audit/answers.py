"""Checks of the grader: equal replies earn equally, and only the right answer is right."""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

from ludic_gym.audit.scores import one_turn_answers, transcript
from ludic_gym.audit.subject import (
    AuditSubject,
    Check,
    Player,
    Result,
    always,
    has_oracle,
    in_budget,
    oracle,
    play,
    random_player,
)
from ludic_gym.types import Env

REPEATS = 5
# Answers that are longer are programs and texts, whose parts are no answers.
LONGEST_ANSWER = 60
CLOCKS = ("time", "perf_counter", "monotonic")
HOURS_S = (0.0, 3599.5, 12 * 3600.25, 86400 * 3.0, 86400 * 200.125)
_TAGGED = re.compile(r"(?s)(<(\w+)>|\\boxed\{)(.*)(</\2>|\})")
_TAG_IN_PROMPT = re.compile(r"<(\w+)>.{0,20}</\1>|(\\boxed)")


def equal_replies_earn_equally(subject: AuditSubject) -> Result:
    """A reply to a task earns the same each time, whatever the clock says."""
    players: list[Callable[[int], Player]] = [random_player, lambda seed: always("")]
    if has_oracle(subject):
        players.insert(0, lambda seed: oracle)
    for seed in in_budget(range(min(subject.episodes, 12)), subject.budget_s):
        for player in players:
            first = None
            for repeat in range(REPEATS):
                env = subject.make()
                # Other hours for each seed: a grader may be lenient in one hour of many.
                with clock_jumps(HOURS_S[repeat] + 3600.0 * seed * repeat) as jump:
                    act = player(seed)

                    def later(env: Env, observation: str, act: Player = act) -> str:
                        jump()
                        return act(env, observation)

                    episode = play(env, seed, later, 50)
                seen = (episode.rewards, episode.success, episode.ended)
                if first is not None and seen != first:
                    evidence = {"one": str(first), "other": str(seen), "play": transcript(episode)}
                    return "fail", f"seed {seed}: {first} at one time, {seen} at another", evidence
                first = seen
    return "pass", f"{REPEATS} times each, with clocks that differ by up to 200 days", {}


def hedges_fail(subject: AuditSubject) -> Result:
    """A reply that names the right answer among wrong ones is wrong."""
    tasks = short_answers(one_turn_answers(subject), subject)
    if tasks is None:
        return "not judged", "only for an oracle that ends its episodes with one short reply", {}
    env, tried = subject.make(), dict[str, list[bool]]()
    examples: dict[str, Any] = {}

    def right(seed: int, form: str, core: str) -> bool:
        return play(env, seed, always(form.format(core)), 1).success

    for seed, (form, answer) in tasks.items():
        mine, others = answer.casefold(), dict.fromkeys(core for _, core in tasks.values())
        # Of answers of which one contains the other, a reply with both may be right.
        wrong = [c for c in others if c.casefold() not in mine and mine not in c.casefold()]
        # Answers of other tasks that are right here too, such as 2 and 2.0, prove nothing.
        wrong = [core for core in wrong if not right(seed, form, core)][:6]
        if not wrong or not right(seed, form, answer):
            continue
        for name, reply in hedges(form, answer, wrong).items():
            episode = play(env, seed, always(reply), 1)
            tried.setdefault(name, []).append(episode.success)
            if episode.success:
                examples.setdefault(name, transcript(episode))
    rates = {name: sum(wins) / len(wins) for name, wins in tried.items()}
    if not rates:
        return "not judged", "no task has a wrong answer of another task", {}
    worst = max(rates, key=lambda name: rates[name])
    evidence = {"success": rates, "examples": examples}
    summary = f"{worst!r} succeeds in {rates[worst]:.0%} of {len(tried[worst])} tasks"
    return ("fail" if rates[worst] > 0.2 else "pass"), summary, evidence


def paraphrases_are_equal(subject: AuditSubject) -> Result:
    """White space and a sentence around the marked answer change nothing; wrong stays wrong.

    The right answer in the mark that the prompt asks for is right.
    """
    answers = one_turn_answers(subject)
    env, tasks = subject.make(), short_answers(answers, subject)
    for seed, reply in answers.items():
        other = next((text for text in answers.values() if text != reply), None)
        pairs = [(reply, [f"{reply}\n", f"\n{reply} "])]
        if tasks is not None and tasks[seed][0] != "{}":
            form, core = tasks[seed]
            marked = form.format(core)
            if play(env, seed, always(reply), 1).success:
                asked = play(env, seed, always(marked), 1)
                if not asked.success:
                    summary = f"{reply[:40]!r} is right, and wrong as the prompt asks for it"
                    return "fail", summary, {"play": transcript(asked)}
            pairs = [(marked, [f"{marked}\n", f"\n{marked} ", f"My answer follows.\n{marked}"])]
        if other is not None:
            pairs.append((other, [f"{other}\n", f"\n{other} "]))
        for text, variants in pairs:
            plain = play(env, seed, always(text), 1)
            for variant in variants:
                episode = play(env, seed, always(variant), 1)
                if (episode.total, episode.success) != (plain.total, plain.success):
                    evidence = {"one": transcript(plain), "other": transcript(episode)}
                    summary = (
                        f"{text[:40]!r} earns {plain.total:g}, {variant[:50]!r} {episode.total:g}"
                    )
                    return "fail", summary, evidence
    return "pass", f"in {len(answers)} tasks", {"tasks": len(answers)}


def hedges(form: str, answer: str, wrong: list[str]) -> dict[str, str]:
    """Replies that contain the right answer and are wrong, by name.

    form: text with {} in the place of the answer. answer: the right one. wrong: some wrong ones.
    """
    other = wrong[0]
    cores = {
        "wrong or right": f"{other} or {answer}",
        "right or wrong": f"{answer} or {other}",
        "a list of answers": ", ".join([*wrong, answer, *wrong[:1]]),
        "letters around it": f"x{answer}x",
    }
    if " " not in answer:
        # A sentence that is repeated is still true.
        cores["doubled"] = f"{answer}{answer}"
    if form != "{}":
        return {name: form.format(core) for name, core in cores.items()} | {
            "two marked answers": f"{form.format(other)} {form.format(answer)}",
            "right, then wrong": f"{form.format(answer)} {form.format(other)}",
        }
    plain = {name: cores[name] for name in ("a list of answers", "letters around it")}
    return plain | {"answers in a row": f"{other} {answer}", "letters after it": f"{answer}xq"}


def short_answers(
    answers: Mapping[int, str], subject: AuditSubject
) -> dict[int, tuple[str, str]] | None:
    """Form and answer of each seed's reply, where the form marks it; None for long answers.

    >>> short_answers({3: "<answer>80</answer>"}, AuditSubject(env_id="ludic/Arithmetic-v0"))
    {3: ('<answer>{}</answer>', '80')}
    """
    env = subject.make()
    _, info = env.reset(seed=0)
    parts = {
        seed: split_reply(text, str(info.get("system_prompt", "")))
        for seed, text in answers.items()
    }
    short = all(0 < len(core) <= LONGEST_ANSWER and "\n" not in core for _, core in parts.values())
    return parts if short else None


def split_reply(reply: str, prompt: str) -> tuple[str, str]:
    r"""A reply as a form with {} and its answer, marked as the prompt demands.

    >>> split_reply("<answer>5</answer>", ""), split_reply("5", "Use <answer></answer>.")
    (('<answer>{}</answer>', '5'), ('<answer>{}</answer>', '5'))
    >>> split_reply("5", "In \\boxed{}."), split_reply("5", "")
    (('\\boxed{{{}}}', '5'), ('{}', '5'))
    """
    if match := _TAGGED.fullmatch(reply.strip()):
        tag, core = match[2], match[3]
        return (f"<{tag}>{{}}</{tag}>" if tag else "\\boxed{{{}}}"), core
    if match := _TAG_IN_PROMPT.search(prompt):
        return ("\\boxed{{{}}}" if match[2] else f"<{match[1]}>{{}}</{match[1]}>"), reply
    return "{}", reply


@contextmanager
def clock_jumps(offset_s: float) -> Iterator[Callable[[], None]]:
    """A block in which the clocks of `time` are ahead; the function given makes them jump.

    Only Python code that asks the module `time` sees them.
    """
    ahead = [offset_s]

    def jump() -> None:
        ahead[0] += offset_s

    def moved(name: str) -> Callable[[], float]:
        real = getattr(time, name)
        return lambda: real() + ahead[0]

    def moved_ns(name: str) -> Callable[[], int]:
        real = getattr(time, f"{name}_ns")
        return lambda: real() + int(ahead[0] * 1e9)

    class Moved(datetime.datetime):
        """The date that the moved clock shows."""

        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Moved:
            """The moved time."""
            return cls.fromtimestamp(time.time(), tz)

    clocks: dict[str, object] = {name: moved(name) for name in CLOCKS}
    clocks |= {f"{name}_ns": moved_ns(name) for name in CLOCKS}
    with mock.patch.dict(vars(time), clocks), mock.patch.object(datetime, "datetime", Moved):
        yield jump


ANSWER_CHECKS: dict[str, Check] = {
    "grader/deterministic": equal_replies_earn_equally,
    "grader/hedges": hedges_fail,
    "grader/paraphrases": paraphrases_are_equal,
}
