"""MultipleChoice: questions with options that are shuffled by the seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase
from typing import Any, Self

import numpy as np

from ludic_gym.data.load import load_rows
from ludic_gym.data.row import Row, text_field
from ludic_gym.envs.core.base import Info
from ludic_gym.envs.core.question import DatasetEnv, Question
from ludic_gym.errors import DataError
from ludic_gym.graders.text import grade_choice

SAMPLE = Path(__file__).parents[1] / "data" / "multiple_choice_sample.jsonl"
REAL = "cais/mmlu"


@dataclass(frozen=True, slots=True)
class Choices(Question):
    """A question whose truth is one of the options."""

    options: tuple[str, ...]


class MultipleChoiceEnv(DatasetEnv):
    """One question with up to 26 options, answered by a letter.

    split: "test" or "train" of MMLU (Hendrycks et al. 2021, arXiv:2009.03300), from the hub;
        without it and without `data`, the bundled sample, which was written for this package.
    config: the part of a hub data set, such as a subject of MMLU.
    data: another source: the path of a .jsonl, .jsonl.gz or .parquet file, of a folder with such a
        file for each split, or a hub id, "Idavidrein/gpqa" for instance. Its fields are "question",
        "choices" (a list of texts) and "answer" (the number of the right one, from 0, or its
        letter), or those of GPQA (Rein et al. 2023, arXiv:2311.12022): "Question", "Correct
        Answer" and "Incorrect Answer 1" to 3.

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
        data: str | None = None,
        config: str | None = None,
        split: str | None = None,
        render_mode: str | None = None,
    ) -> None:
        rows = load_rows(data, choices, sample=SAMPLE, real=REAL, config=config, split=split)
        self._choices = rows.items
        super().__init__(rows.items, rows.origin, render_mode)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        memo[id(self._choices)] = self._choices
        return super().__deepcopy__(memo)

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
    if "Correct Answer" in row.fields:
        row = _from_gpqa(row)
    options, answer = row.fields.get("choices"), row.fields.get("answer")
    if not isinstance(options, list) or not all(isinstance(o, str) for o in options):
        raise DataError(f"{row.where}: field 'choices' must be a list of texts, got {options!r}")
    if not 2 <= len(set(options)) <= len(ascii_uppercase):
        raise DataError(f"{row.where}: 'choices' must be 2 to 26 different texts, got {options!r}")
    letters = ascii_uppercase[: len(options)]
    place = letters.find(answer) if isinstance(answer, str) and len(answer) == 1 else answer
    if type(place) is not int or not 0 <= place < len(options):
        raise DataError(
            f"{row.where}: field 'answer' must be from 0 to {len(options) - 1} or a letter from A "
            f"to {letters[-1]}, got {answer!r}"
        )
    # Some published rows say an option twice; either is the same choice.
    distinct = tuple(dict.fromkeys(options))
    return Choices(text_field(row, "question"), options[place], distinct)


def _from_gpqa(row: Row) -> Row:
    names = ("Correct Answer", *(f"Incorrect Answer {i}" for i in (1, 2, 3)))
    options = [text_field(row, name).strip() for name in names]
    question = text_field(row, "Question").strip()
    return Row(row.where, {"question": question, "choices": options, "answer": 0})
