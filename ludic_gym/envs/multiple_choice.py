"""MultipleChoice: questions with options that are shuffled by the seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import numpy as np

from ludic_gym.data import Row, load, text_field
from ludic_gym.envs.base import Info
from ludic_gym.envs.qa import DatasetEnv, Question
from ludic_gym.errors import DataError
from ludic_gym.graders import grade_choice

SAMPLE = Path(__file__).parent / "data" / "multiple_choice_sample.jsonl"


@dataclass(frozen=True, slots=True)
class Choices(Question):
    """A question whose truth is one of the options."""

    options: tuple[str, ...]


class MultipleChoiceEnv(DatasetEnv):
    """One question with up to 26 options, answered by a letter.

    data: "sample" (a few questions written for this package), the path of a .jsonl or .parquet file
        with the fields "question", "choices" (a list of texts) and "answer" (the number of the
        right one, from 0), or a hub id: "cais/mmlu" has these fields.
    config: the part of a hub data set, such as a subject of MMLU.
    split: the split of a hub data set, "test" unless given; a file has none.

    The options are in another order for every seed, so a favourite letter earns no more than
    chance; a row that is asked for has the same order for every seed. Observation: the question
    and the options. Reward: 1 for the right letter.

        Which planet is closest to the Sun?
        A. Venus
        B. Mercury
        C. Mars
        D. Earth
    <answer>B</answer>             (reward 1)
    """

    prompt = "Choose the right option and give just its letter in <answer></answer> tags."
    grade = grade_choice

    def __init__(
        self,
        data: str = "sample",
        config: str | None = None,
        split: str | None = None,
        render_mode: str | None = None,
    ) -> None:
        self._choices = load(data, choices, sample=SAMPLE, config=config, split=split)
        super().__init__(self._choices, render_mode)

    def _ask(self, options: Mapping[str, Any]) -> tuple[Question, Info]:
        _, info = super()._ask(options)
        row = self._choices[info["row"]]
        # A row that is asked for is the same task for every seed.
        asked = options.get("row") is not None
        rng = np.random.default_rng(info["row"]) if asked else self.np_random
        order = [row.options[int(i)] for i in rng.permutation(len(row.options))]
        lines = (f"{letter}. {text}" for letter, text in zip(ascii_uppercase, order, strict=False))
        truth = ascii_uppercase[order.index(row.truth)]
        return Question("\n".join([row.text, *lines]), truth), info


def choices(row: Row) -> Choices:
    """The question and its options. Raises DataError unless one of them is marked as right."""
    options, answer = row.fields.get("choices"), row.fields.get("answer")
    if not isinstance(options, list) or not all(isinstance(o, str) for o in options):
        raise DataError(f"{row.where}: field 'choices' must be a list of texts, got {options!r}")
    if not 2 <= len(set(options)) == len(options) <= len(ascii_uppercase):
        raise DataError(f"{row.where}: 'choices' must be 2 to 26 different texts, got {options!r}")
    if not isinstance(answer, int) or not 0 <= answer < len(options):
        raise DataError(
            f"{row.where}: field 'answer' must be from 0 to {len(options) - 1}, got {answer!r}"
        )
    return Choices(text_field(row, "question"), options[answer], tuple(options))
