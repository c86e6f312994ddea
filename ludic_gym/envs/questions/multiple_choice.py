"""MultipleChoice: questions whose options are shuffled by the seed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase
from types import MappingProxyType
from typing import Any

import numpy as np

from ludic_gym.data.load import load_rows
from ludic_gym.data.row import Row, text_field
from ludic_gym.envs.core.question import DatasetEnv, Question
from ludic_gym.errors import DataError
from ludic_gym.graders.text import grade_choice

SAMPLE = Path(__file__).parents[1] / "data" / "multiple_choice_sample.jsonl"
# "Both A and B", "A, C and D only", "Neither A nor B is true".
_NAMES_LETTERS = re.compile(
    r"(?:(?i:both|either|neither|only|options|answers|choices)\s+)?\(?[A-Z]\)?"
    r"(?:(?:\s*[,/&]|\s+(?i:and|or|nor)\b)+\s*\(?[A-Z]\)?)+(?i:\s+only|\s+(?:is|are)\s.+)?\.?"
)
# "None of the above".
_NAMES_ABOVE = re.compile(r"\b(?:of|all|any|none)\s+(?:the\s+)?above\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Choices(Question):
    """A question, its options, and the correct one as truth.

    is_ordered: an option names others by their letters, so that they must stay in this order.
    """

    options: tuple[str, ...]
    is_ordered: bool = False


class MultipleChoiceEnv(DatasetEnv):
    """A question with 2 to 26 options.

    The seed shuffles the options, so that a constant letter scores no more than chance. Those of
    the kind "none of the above" stay last, and a row with an option such as "both A and B" keeps
    its order. A row that is named by the option "row" has the same order for all seeds.

    - Observation: the question and the options, with letters from A on.
    - Action: a letter, best in <answer></answer> tags.
    - Reward and info: see `QuestionEnv` and `DatasetEnv`.

    Args:
        data: path of a .jsonl, .jsonl.gz or .parquet file, of a folder with such a file per split,
            or a hub id such as "Idavidrein/gpqa"; None for MMLU. The fields are "question",
            "choices" (a list of texts) and "answer" (the index of the correct one, from 0, or its
            letter), or those of GPQA (Rein et al. 2023, arXiv:2311.12022): "Question", "Correct
            Answer" and "Incorrect Answer 1" to 3.
        config: config of a hub dataset, such as a subject of MMLU.
        split: "test" or "train" of MMLU (Hendrycks et al. 2021, arXiv:2009.03300), from the hub.
            Without `split` and `data`, the bundled sample, written for this package.
    """

    hub_ids = MappingProxyType(dict.fromkeys(("test", "train"), "cais/mmlu"))
    prompt = "Choose the right option and give just its letter in tags, such as <answer>C</answer>."
    grade = grade_choice

    def __init__(
        self,
        data: str | None = None,
        config: str | None = None,
        split: str | None = None,
        render_mode: str | None = None,
    ) -> None:
        rows = load_rows(
            data, choices, sample=SAMPLE, real=self.hub_ids["test"], config=config, split=split
        )
        super().__init__(rows, render_mode)

    def ask(self, options: Mapping[str, Any]) -> Question:
        """The question of the row, with its options shuffled."""
        row = super().ask(options)
        assert isinstance(row, Choices), "choices() parses all rows"
        # A row that is named is the same task for every seed.
        is_named = options.get("row") is not None
        rng = np.random.default_rng(self.about["row"]) if is_named else self.np_random
        order = row.options if row.is_ordered else _option_order(row.options, rng)
        lines = (f"{letter}. {text}" for letter, text in zip(ascii_uppercase, order, strict=False))
        truth = ascii_uppercase[order.index(row.truth)]
        return Question("\n".join([row.text, *lines]), truth)


def _option_order(options: tuple[str, ...], rng: np.random.Generator) -> list[str]:
    """The options in an order of `rng`, with those that name "the above" last, in their own."""
    last = [option for option in options if _NAMES_ABOVE.search(option)]
    others = [option for option in options if option not in last]
    return [*(others[int(i)] for i in rng.permutation(len(others))), *last]


def choices(row: Row) -> Choices:
    """The question and its options. Raises DataError unless one of them is marked as correct."""
    # Its correct option is read first: in that order, A would always be right.
    is_gpqa = "Correct Answer" in row.fields
    if is_gpqa:
        names = ("Correct Answer", *(f"Incorrect Answer {i}" for i in (1, 2, 3)))
        choices = [text_field(row, name).strip() for name in names]
        question = text_field(row, "Question").strip()
        row = Row(row.where, {"question": question, "choices": choices, "answer": 0})
    options, answer = row.fields.get("choices"), row.fields.get("answer")
    if not isinstance(options, list) or not all(isinstance(o, str) for o in options):
        raise DataError(f"{row.where}: field 'choices' must be a list of texts, got {options!r}")
    if not 2 <= len(set(options)) <= len(ascii_uppercase):
        raise DataError(f"{row.where}: 'choices' must be 2 to 26 different texts, got {options!r}")
    letters = ascii_uppercase[: len(options)]
    # An unknown letter is found at -1, which the check of the range rejects.
    place = letters.find(answer) if isinstance(answer, str) and len(answer) == 1 else answer
    if type(place) is not int or not 0 <= place < len(options):
        raise DataError(
            f"{row.where}: field 'answer' must be from 0 to {len(options) - 1} or a letter from A "
            f"to {letters[-1]}, got {answer!r}"
        )
    question = text_field(row, "question")
    if not is_gpqa and any(_names_letters(option, letters) for option in options):
        return Choices(question, options[place], tuple(options), is_ordered=True)
    # Some published rows repeat an option; both are the same choice.
    return Choices(question, options[place], tuple(dict.fromkeys(options)))


def _names_letters(option: str, letters: str) -> bool:
    """True for an option that consists of letters of other options."""
    names = re.findall(r"\b[A-Z]\b", option)
    return bool(_NAMES_LETTERS.fullmatch(option.strip())) and set(names) <= set(letters)
