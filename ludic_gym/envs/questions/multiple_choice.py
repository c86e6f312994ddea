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

from ludic_gym.data.fields import Fields
from ludic_gym.data.load import OnBadRow, load_rows
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
        data: path of a .jsonl, .jsonl.gz, .parquet, .json or .csv file, of a folder with such a
            file per split, or a hub id such as "Idavidrein/gpqa"; None for MMLU. The layouts of
            published sets of choices are recognised.
        config: config of a hub dataset, such as a subject of MMLU.
        split: "test" or "train" of MMLU (Hendrycks et al. 2021, arXiv:2009.03300), from the hub.
            Without `split` and `data`, the bundled sample, written for this package.
        fields: columns of another layout, see `load_rows`: of "question"; of "choices" (a list of
            texts, an object of texts by letter, or a list of columns), maybe with their "labels";
            and of "answer" (the index from 0, the letter, the label, the text, or a list with 1 at
            the correct one) or "answer_text" (the text only).
        on_bad_row: "skip" leaves out rows that cannot be asked or graded.
    """

    hub_ids = MappingProxyType(dict.fromkeys(("test", "train"), "cais/mmlu"))
    prompt = "Choose the right option and give just its letter in tags, such as <answer>C</answer>."
    grade = grade_choice

    def __init__(
        self,
        data: str | None = None,
        config: str | None = None,
        split: str | None = None,
        *,
        fields: Fields | None = None,
        on_bad_row: OnBadRow = "error",
        render_mode: str | None = None,
    ) -> None:
        rows = load_rows(
            data,
            choices,
            sample=SAMPLE,
            real=self.hub_ids["test"],
            config=config,
            split=split,
            kind="choice",
            fields=fields,
            on_bad_row=on_bad_row,
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
    options, labels = row.fields.get("choices"), row.fields.get("labels")
    if isinstance(options, Mapping):
        options, labels = list(options.values()), list(options)
    if not isinstance(options, list) or not all(isinstance(o, str) for o in options):
        raise DataError(f"{row.where}: field 'choices' must be a list of texts, got {options!r}")
    options = [option.strip() for option in options]
    if not 2 <= len(set(options)) <= len(ascii_uppercase):
        raise DataError(f"{row.where}: 'choices' must be 2 to 26 different texts, got {options!r}")
    place = _place(row, options, labels)
    question = text_field(row, "question").strip()
    # Sets that name the text of the answer have it first: in that order, A would always be right.
    letters = ascii_uppercase[: len(options)]
    if "answer" in row.fields and any(_names_letters(option, letters) for option in options):
        return Choices(question, options[place], tuple(options), is_ordered=True)
    # Some published rows repeat an option; both are the same choice.
    return Choices(question, options[place], tuple(dict.fromkeys(options)))


def _place(row: Row, options: list[str], labels: object) -> int:
    """The index of the correct option. Raises DataError if none is named."""
    name = "answer" if "answer" in row.fields else "answer_text"
    answer = row.fields.get(name)
    answer = answer.strip() if isinstance(answer, str) else answer
    letters = ascii_uppercase[: len(options)]
    place: object
    if name == "answer_text":
        place = _index(options, answer)
    elif isinstance(labels, list):
        place = _index(labels if answer in labels else options, answer)
    elif isinstance(answer, list):
        # 1 at the correct one.
        place = _index(answer, 1) if (len(answer), answer.count(1)) == (len(options), 1) else -1
    elif isinstance(answer, str) and re.fullmatch("[A-Z]", answer):
        place = letters.find(answer)
    elif answer in options or not isinstance(answer, str):
        place = _index(options, answer) if isinstance(answer, str) else answer
    else:
        place = int(answer) if re.fullmatch(r"\d\d?", answer) else -1
    if type(place) is not int or not 0 <= place < len(options):
        raise DataError(
            f"{row.where}: field {name!r} must be from 0 to {len(options) - 1} or a letter from A "
            f"to {letters[-1]}, or one of the choices, got {answer!r}"
        )
    return place


def _index(values: list[Any], value: object) -> int:
    return values.index(value) if value in values else -1


def _names_letters(option: str, letters: str) -> bool:
    """True for an option that consists of letters of other options."""
    names = re.findall(r"\b[A-Z]\b", option)
    return bool(_NAMES_LETTERS.fullmatch(option.strip())) and set(names) <= set(letters)
