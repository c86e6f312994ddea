"""Checks for answers that can be read before the end of an episode.

Differential: an answer leaks through a surface (an info, an observation, the render, an error) if
it is found there in its own episodes, and answers of other episodes are not. Canary: a question
whose truth is replaced by a text that occurs nowhere must not show that text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from ludic_gym.audit.answers import split_reply
from ludic_gym.audit.codes import ABOUT_CODES, codes_of, decides, numbers_of
from ludic_gym.audit.subject import (
    AuditSubject,
    Check,
    Play,
    Result,
    Undecided,
    always,
    play,
    random_player,
)
from ludic_gym.concurrency import Caught
from ludic_gym.envs.core.question import QuestionEnv
from ludic_gym.types import Env

CANARY = "canary-5e1f-zq-0b7d"
TRUTHS = re.compile(r"truth|answer|target|solution|secret|expected|word|code", re.IGNORECASE)
# An answer of most tasks cannot be distinguished from a text that all tasks have.
MOST_COMMON = 0.6
# Rate by which an answer is found more often in its own episodes than in others.
MARGIN = 0.5
# Characters of the text before an answer by which an extractor finds it.
CONTEXTS = range(4, 25)
TASK = "the observation"
SPACES = f"{TASK}'s spaces"
WRONG = ("", "xyzzy", "0")


@dataclass(frozen=True, slots=True)
class Secret:
    """The answer of a seed, and all that can be seen of that episode before its end, by surface."""

    seed: int
    answer: str
    first: str
    seen: Mapping[str, str]

    @property
    def about_codes(self) -> bool:
        """True if the task says that it is about a code, such as a word that is to be reversed."""
        return ABOUT_CODES.search(self.first) is not None


def infos_have_no_answer(subject: AuditSubject) -> Result:
    """No value of an info before the end is the answer, contains it, or decides it."""
    return _no_answer(subject, lambda name: name.startswith("info["))


def texts_have_no_answer(subject: AuditSubject) -> Result:
    """No later observation, render, repr, error or space contains the answer."""
    return _no_answer(subject, lambda name: not name.startswith(("info[", TASK)))


def observations_have_no_answer(subject: AuditSubject) -> Result:
    """The first observation has no code of the answer; nor does a fixed text mark it, or a space.

    Marks are searched in the system prompt too.
    """
    outcome, summary, found = _no_answer(subject, lambda name: name.startswith(TASK))
    if outcome == "fail":
        return outcome, summary, found
    secrets = subject.once("secrets", lambda: secrets_of(subject))
    for name in ("observation", "prompt"):
        texts = [
            s.first if name == "observation" else s.seen["info['system_prompt']"]
            for s in secrets
            if name == "observation" or "info['system_prompt']" in s.seen
        ]
        if len(texts) < len(secrets):
            continue
        common_mark = extractor(texts, [s.answer for s in secrets])
        if common_mark is not None:
            before, rate = common_mark
            evidence = {"before": before, "rate": rate, "example": texts[0][:500]}
            return "fail", f"the answer follows {before!r} in {rate:.0%} of the tasks", evidence
    return "pass", f"{len(secrets)} tasks have no common mark", {"tasks": len(secrets)}


def canary_is_hidden(subject: AuditSubject) -> Result:
    """The truth of a question is in nothing that can be seen before the reply."""
    env = subject.make()
    inner = env.unwrapped
    if not isinstance(inner, QuestionEnv):
        return "not judged", "only for a QuestionEnv, whose truth the audit can replace", {}
    ask = type(inner).ask

    def asked(options: Mapping[str, Any]) -> Any:  # noqa: ANN401 (any kind of question)
        return replace(ask(inner, options), truth=CANARY)

    # The instance's own hook, because the class is shared.
    vars(inner)["ask"] = asked
    for seed in range(4):
        with Caught(Exception) as failure:
            text, info = env.reset(seed=seed)
        if failure.error is not None:
            return "not judged", f"its truth cannot be replaced: {failure.text}", {}
        for name, seen in [("observation", text), *surfaces(env, info).items()]:
            if code := next(codes_of(seen, CANARY), None):
                evidence = {"surface": name, "text": seen[:500], "code": code}
                return "fail", f"{name} shows the truth of seed {seed}", evidence
    return "pass", "the canary is hidden in 4 tasks", {}


def secrets_of(subject: AuditSubject) -> list[Secret]:
    """Answers by seed, with what can be seen before the end. Raises Undecided if none are known.

    The answer is the oracle's last action in a success, or a truth that the last info names.
    """
    ended = subject.oracle_plays()
    if not ended:
        # Some environments name the truth after a failure, which serves as well as an oracle.
        ended = subject.plays(lambda seed: always("xyzzy"), most=1)
    answers = {p.seed: answer_of(p) for p in ended if p.ended}
    answers = {seed: text for seed, text in answers.items() if text}
    if len(answers) < 6 or max(Counter(answers.values()).values()) > MOST_COMMON * len(answers):
        raise Undecided("no answers are known that differ from task to task")
    return [_secret_of(subject, seed, answer) for seed, answer in answers.items()]


def answer_of(episode: Play) -> str:
    """The answer of an episode, without its marks; "" if it is not known."""
    if episode.success:
        return split_reply(episode.actions[-1], "")[1].strip()
    named = [str(value) for key, value in episode.infos[-1].items() if TRUTHS.search(key) and value]
    return named[-1].strip() if len(named) and not episode.success else ""


def surfaces(env: Env, info: Mapping[str, Any]) -> dict[str, str]:
    """All texts beside the observation that a reset gives, by name."""
    texts = {f"info{path}": str(value) for path, value in flat(info)}
    texts["repr"] = f"{env.unwrapped!r} {env.unwrapped}"
    texts["spaces"] = f"{env.observation_space} {env.action_space} {env.metadata}"
    return texts


def flat(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """The leaves of nested mappings, each with its path.

    >>> list(flat({"a": {"b": 1}}))
    [("['a']['b']", 1)]
    """
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from flat(inner, f"{path}[{key!r}]")
    else:
        yield path, value


def extractor(texts: list[str], answers: list[str]) -> tuple[str, float] | None:
    """A text that precedes the answer in most of the texts, and the rate; None if there is none."""
    marks = Counter[str]()
    # A mark that works in nine tasks of ten is before the answers of several of four.
    for text, answer in list(zip(texts, answers, strict=True))[:4]:
        for match in re.finditer(re.escape(answer), text):
            marks.update({text[max(0, match.start() - k) : match.start()] for k in CONTEXTS})
    for mark, count in marks.most_common(60):
        if count < 2 or not mark.strip():
            continue
        # An extractor that takes the first, or the last, place of the mark.
        for split in (str.partition, str.rpartition):
            hits = [
                re.match(rf"{re.escape(answer)}(?!\w)", split(text, mark)[2]) is not None
                for text, answer in zip(texts, answers, strict=True)
            ]
            if sum(hits) >= 0.9 * len(hits):
                return mark, sum(hits) / len(hits)
    return None


def _secret_of(subject: AuditSubject, seed: int, answer: str) -> Secret:
    """The secret of a seed: one reset, and first turns of players that do not know it.

    An action that is no text (7) shows the error; a player that happens to play the answer is left
    out, since what follows a right answer may name it.
    """
    env = subject.make()
    if "ansi" in env.metadata.get("render_modes", ()):
        env = subject.make(render_mode="ansi")
    text, info = env.reset(seed=seed)
    seen = surfaces(env, info)
    seen |= {TASK: str(text), SPACES: str([_spaces(line) for line in str(text).splitlines()])}
    with Caught(Exception) as failure:
        seen["render"] = str(env.render())
    with Caught(Exception) as failure:
        # Errors are a surface too: some name the answer that they compared the action with.
        env.step(7)  # type: ignore[arg-type]
    seen["error"] = failure.text
    for name, player in [(f"after {w!r}", always(w)) for w in WRONG] + [
        ("after a random action", random_player(seed))
    ]:
        # Two turns: the text after a wrong guess often says more than the first one.
        turns = play(subject.make(), seed, player, 2)
        # After the end, the answer may be shown.
        last = len(turns.rewards) if not turns.ended else len(turns.rewards) - 1
        if last > 0 and answer not in turns.actions:
            seen[name] = "\n".join(turns.observations[1 : last + 1])
            for later in turns.infos[1 : last + 1]:
                seen |= {f"info{path} {name}": str(value) for path, value in flat(later)}
    return Secret(seed, answer, str(text), seen)


def _spaces(line: str) -> int:
    """Number of spaces at the end of a line and of further ones between its words."""
    return len(line) - len(" ".join(line.split()))


def _no_answer(subject: AuditSubject, concerns: Callable[[str], bool]) -> Result:
    secrets = subject.once("secrets", lambda: secrets_of(subject))
    names = [name for name in dict.fromkeys(n for s in secrets for n in s.seen) if concerns(name)]
    for name in names:
        seen_in = [s for s in secrets if name in s.seen]
        if len(seen_in) < 6:
            continue
        for what, leak in KINDS.items():
            if rates := leak(seen_in, name):
                example = seen_in[0]
                evidence = {**rates, "answer": example.answer, "text": example.seen[name][:500]}
                rate = f"in {rates['own']:.0%} of {len(seen_in)} tasks"
                return "fail", f"{name} {what} {rate}", evidence
    return "pass", f"{len(names)} surfaces of {len(secrets)} tasks", {"surfaces": names}


def _containing_rates(secrets: list[Secret], name: str) -> dict[str, float]:
    """Rates at which a surface has its own answer and another's; empty if it does not leak.

    The answers of other tasks are the base rate: a list of all possible answers is no leak.
    """
    # An answer that the player can read in the task anyway is no secret, unless the value is the
    # answer and nothing else.
    exact = [s.seen[name].strip().casefold() == s.answer.casefold() for s in secrets]
    hits = [_is_shown(s, name, s.answer) for s in secrets]
    others = [
        _is_shown(s, name, o.answer)
        for s, o in zip(secrets, secrets[1:] + secrets[:1], strict=True)
        if s.answer != o.answer
    ]
    rate, base = sum(hits) / len(hits), sum(others) / max(1, len(others))
    if sum(exact) >= 0.9 * len(exact):
        return {"own": sum(exact) / len(exact), "others": 0.0}
    return {"own": rate, "others": base} if rate - base > MARGIN else {}


def _is_shown(secret: Secret, name: str, answer: str) -> bool:
    """True if a surface has the answer in plain text or in a code, and the task has it not."""
    known = {*codes_of(secret.first, answer)}
    if name == TASK:
        # The answer itself may stand in the task, and so may its code if the task is about codes.
        return bool(known - {"plain"}) and not secret.about_codes
    return any(code not in known for code in codes_of(secret.seen[name], answer))


def _moved_rates(secrets: list[Secret], name: str) -> dict[str, float]:
    """1 if a number of the surface, always at one place, is the answer plus or times a number.

    The answer is a number, or the place of a letter.
    """
    answers = [_number(s.answer) for s in secrets]
    if None in answers or len({*answers}) < 4:
        return {}
    known = [answer for answer in answers if answer is not None]
    rows = [numbers_of(s.seen[name]) for s in secrets]
    for place in (*range(6), *range(-6, 0)):
        if all(-len(row) <= place < len(row) for row in rows) and decides(
            [row[place] for row in rows], known
        ):
            return {"own": 1.0, "others": 0.0}
    return {}


def _number(answer: str) -> int | None:
    text = answer.replace(",", "")
    if re.fullmatch(r"-?\d{1,18}", text):
        return int(text)
    return "ABCDEFGHIJ".index(text) if re.fullmatch("[A-J]", text) else None


def _deciding_rates(secrets: list[Secret], name: str) -> dict[str, float]:
    """The rate of pairs of tasks with equal values that have equal answers; empty if by chance.

    A value that decides the answer without naming it, such as a number of the task's row.
    """
    # Equal observations are one task, which its number decides rightly.
    pairs = [(a, b) for a, b in combinations(secrets, 2) if a.first != b.first]
    equal = [a.answer == b.answer for a, b in pairs if a.seen[name] == b.seen[name]]
    if len(equal) < 12 or len({s.seen[name] for s in secrets}) < 2 or not all(equal):
        return {}
    chance = sum(a.answer == b.answer for a, b in pairs) / len(pairs)
    # The probability that so many pairs agree by chance, if pairs were independent.
    return {"own": 1.0, "others": chance} if chance ** len(equal) < 1e-6 else {}


KINDS = {
    "has the answer": _containing_rates,
    "has the answer, moved by a number,": _moved_rates,
    "decides it": _deciding_rates,
}
"""The ways in which a surface shows the answer, each with its measure."""

LEAK_CHECKS: dict[str, Check] = {
    "leaks/info": infos_have_no_answer,
    "leaks/texts": texts_have_no_answer,
    "leaks/observation": observations_have_no_answer,
    "leaks/canary": canary_is_hidden,
}
