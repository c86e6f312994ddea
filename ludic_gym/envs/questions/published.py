"""Published: benchmarks with their publishers' columns, rules and figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import numpy as np

from envs_registry.published import PUBLISHED
from ludic_gym.data.load import Rows, load_rows
from ludic_gym.envs.core.base import Turn, checked_choice, end
from ludic_gym.envs.core.question import DatasetEnv, Question
from ludic_gym.envs.questions.published_rows import PARSERS, PublishedQuestion
from ludic_gym.errors import ConfigError, NoOracle
from ludic_gym.graders.benchmark_rules import (
    bbh_answer,
    drop_scores,
    gpqa_letter,
    hotpot_scores,
    mmlu_pro_letter,
)
from ludic_gym.graders.extract import after_thought, extract
from ludic_gym.graders.ifeval import followed, require_packages
from ludic_gym.graders.numeric import grade_number


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Verdict on a reply.

    metrics: further figures of the benchmark by name, 0 to 1. weights: of those that are averaged
    over something other than questions, such as instructions.
    """

    correct: bool
    answer: str | None
    rule: str
    metrics: Mapping[str, float] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)


Marker = Callable[[str, PublishedQuestion], Marks]


class PublishedEnv(DatasetEnv):
    """A question of a published benchmark, by its publisher's rule.

    The guide "Published benchmarks" has the rule, the columns and the differences of each.

    - Observation: the question.
    - Action: the reply. Text before `</think>` is ignored.
    - Reward: 1 for a success, else 0 (component "correct").
    - Info at the end: see `QuestionEnv` and `DatasetEnv`; "metric/NAME" for each figure of a
      benchmark that has several, such as "metric/f1", and "weight/NAME" for its weight in the mean.

    Args:
        benchmark: "aime", "mmlu-pro", "gpqa", "ifeval", "bbh", "drop" or "hotpotqa".
        data: path of a .jsonl, .jsonl.gz, .parquet, .json or .csv file, of a folder with such a
            file per split, or a hub id; None for the published data set, from the hub.
        config: part of a hub dataset, such as a task of BIG-Bench Hard.
        split: split of a hub dataset or a folder.
        render_mode: "ansi", "html" or None.

    ```text
    Question:
    Which planet is closest to the Sun?
    Options:
    A. Venus
    B. Mercury
    Answer: Let's think step by step.
    > Mercury's orbit is the smallest. The answer is (B).         (reward 1)
    ```
    """

    def __init__(
        self,
        benchmark: str,
        data: str | None = None,
        config: str | None = None,
        split: str | None = None,
        render_mode: str | None = None,
    ) -> None:
        self._benchmark = checked_choice("benchmark", benchmark, tuple(PARSERS))
        entry = PUBLISHED[benchmark]
        if data == "sample":
            raise ConfigError(f"{entry.id} has no sample; name a file (data='rows.jsonl')")
        parse = PARSERS[benchmark]
        rows = load_rows(data or entry.hub, parse, sample=Path(), config=config, split=split)
        super().__init__(Rows(tuple(chain.from_iterable(rows)), rows.origin), render_mode)
        if benchmark == "ifeval":
            # Raised here, because no action may raise later.
            questions = chain.from_iterable(rows)
            require_packages(i.kind for question in questions for i in question.instructions)
        self.prompt = entry.prompt

    def ask(self, options: Mapping[str, Any]) -> Question:
        """The question of the row, with its options shuffled if the benchmark does so."""
        row = super().ask(options)
        assert isinstance(row, PublishedQuestion), "PARSERS makes all rows"
        self.prompt = PUBLISHED[self._benchmark].prompt.replace("{subject}", row.subject)
        if not row.options:
            return row
        # A row that is named is the same task for every seed.
        is_named = options.get("row") is not None
        rng = np.random.default_rng(self.about["row"]) if is_named else self.np_random
        return shuffled(row, rng)

    def turn(self, action: str) -> Turn:
        """Grade the reply and end the episode."""
        question = self.question
        assert isinstance(question, PublishedQuestion), "ask() returns no other"
        reply, rule = after_thought(action)
        marks = MARKERS[self._benchmark](reply or "", question)
        self.verdict = f"{action}\n\n{'correct' if marks.correct else 'wrong'}"
        info = {
            "answer": marks.answer or "",
            "rule": marks.rule if reply else rule,
            "truth": question.truth,
            **{f"metric/{name}": float(value) for name, value in marks.metrics.items()},
            **{f"weight/{name}": float(value) for name, value in marks.weights.items()},
            **self.about,
        }
        return end(success=marks.correct, info=info, correct=marks.correct)

    def best_action(self) -> str:
        """A correct reply. Raises NoOracle where none is known."""
        best = getattr(self.question, "best", "")
        if not best:
            raise NoOracle(f"{PUBLISHED[self._benchmark].title}: rows have no reply that is right")
        return str(best)


def shuffled(question: PublishedQuestion, rng: np.random.Generator) -> PublishedQuestion:
    """The question with its options in another order, as GPQA prints them."""
    order = [int(i) for i in rng.permutation(len(question.options))]
    lines = [f"({ascii_uppercase[k]}) {question.options[i]}" for k, i in enumerate(order)]
    letter = ascii_uppercase[order.index(0)]
    text = "\n".join(
        [f"What is the correct answer to this question: {question.text}", "", "Choices:", *lines]
    )
    return replace(question, text=text, truth=letter, best=f"The correct answer is ({letter})")


def _by_letter(found: Callable[[str], str | None]) -> Marker:
    def mark(reply: str, question: PublishedQuestion) -> Marks:
        letter = found(reply)
        rule = "letter" if letter else "none"
        return Marks(correct=letter == question.truth, answer=letter, rule=rule)

    return mark


def _aime(reply: str, question: PublishedQuestion) -> Marks:
    grade = grade_number(reply, question.truth)
    return Marks(correct=grade.correct, answer=grade.answer, rule=grade.rule)


def _bbh(reply: str, question: PublishedQuestion) -> Marks:
    answer = bbh_answer(reply, question.truth)
    rule = "answer is" if "answer is" in reply else "last line"
    return Marks(correct=answer == question.truth, answer=answer, rule=rule)


def _drop(reply: str, question: PublishedQuestion) -> Marks:
    answer, rule = extract(reply)
    parts = [part.strip() for part in (answer or "").splitlines() if part.strip()]
    em, f1 = drop_scores(parts, question.answers) if parts else (0.0, 0.0)
    return Marks(correct=em == 1, answer=answer, rule=rule, metrics={"em": em, "f1": f1})


def _hotpotqa(reply: str, question: PublishedQuestion) -> Marks:
    answer, rule = extract(reply)
    em, f1 = hotpot_scores(answer, question.truth) if answer else (0.0, 0.0)
    return Marks(correct=em == 1, answer=answer, rule=rule, metrics={"em": em, "f1": f1})


def _ifeval(reply: str, question: PublishedQuestion) -> Marks:
    strict = followed(reply, question.instructions)
    loose = followed(reply, question.instructions, loose=True)
    broken = [i.kind for i, kept in zip(question.instructions, strict, strict=True) if not kept]
    count = len(strict)
    return Marks(
        correct=all(strict),
        answer=reply,
        rule=f"not followed: {', '.join(broken)}" if broken else "followed",
        metrics={
            "prompt_strict": all(strict),
            "prompt_loose": all(loose),
            "instruction_strict": sum(strict) / count,
            "instruction_loose": sum(loose) / count,
        },
        # Instruction-level accuracy is over all instructions, not over prompts.
        weights={"instruction_strict": count, "instruction_loose": count},
    )


MARKERS: Mapping[str, Marker] = {
    "aime": _aime,
    "mmlu-pro": _by_letter(mmlu_pro_letter),
    "gpqa": _by_letter(gpqa_letter),
    "ifeval": _ifeval,
    "bbh": _bbh,
    "drop": _drop,
    "hotpotqa": _hotpotqa,
}
