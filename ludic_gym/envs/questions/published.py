"""PublishedEnv: published benchmarks, their rows and their rules of grading."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import numpy as np

from envs_registry.published import PUBLISHED
from ludic_gym.data.fields import Fields
from ludic_gym.data.load import OnBadRow, Several, load_rows
from ludic_gym.data.row import Row, parse_json, text_field
from ludic_gym.envs.core.base import Turn, checked_choice, end
from ludic_gym.envs.core.question import DatasetEnv, Question
from ludic_gym.envs.questions.maths import answer_of
from ludic_gym.errors import ConfigError, DataError, NoOracle
from ludic_gym.graders import ifbench, ifeval
from ludic_gym.graders.benchmark_rules import (
    bbh_answer,
    drop_scores,
    gpqa_letter,
    hotpot_scores,
    mmlu_pro_letter,
)
from ludic_gym.graders.extract import Grade, after_thought, extract
from ludic_gym.graders.ifeval import Instruction, Kind, instruction, instructions_followed
from ludic_gym.graders.numeric import grade_number, parse_number

_DEGREES = re.compile(r"\s*(?:°|\^\{?\\circ\}?)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedQuestion(Question):
    """A question with all that its grader needs.

    best: a reply that is graded as correct; "" if none is known.
    subject: of the question; "" for none.
    options: texts to be shuffled into the question; the first is correct.
    answers: parts of each annotator's answer. instructions: to be followed.
    """

    best: str = ""
    subject: str = ""
    options: tuple[str, ...] = ()
    answers: tuple[tuple[str, ...], ...] = ()
    instructions: tuple[Instruction, ...] = ()


def aime(row: Row) -> PublishedQuestion:
    """A problem whose answer is an integer from 0 to 999. Raises DataError for any other."""
    # One published answer is in degrees.
    answer = answer_of(row)
    number = parse_number(_DEGREES.sub("", answer))
    if number is None or number != int(number) or not 0 <= number <= 999:
        raise DataError(f"{row.where}: field 'answer' must be from 0 to 999, got {answer!r}")
    truth = str(int(number))
    return PublishedQuestion(text_field(row, "question"), truth, best=f"\\boxed{{{truth}}}")


def mmlu_pro(row: Row) -> PublishedQuestion:
    """A question with up to ten options in the order of the row, without those that are N/A."""
    options, letter = row.fields.get("options"), text_field(row, "answer")
    if not isinstance(options, list) or not all(isinstance(o, str) for o in options):
        raise DataError(f"{row.where}: field 'options' must be a list of texts, got {options!r}")
    shown = [option for option in options if option != "N/A"]
    if letter not in ascii_uppercase[: len(shown)]:
        last = ascii_uppercase[len(shown) - 1]
        raise DataError(f"{row.where}: field 'answer' must be a letter up to {last}, got {letter}")
    lines = [f"{name}. {option}" for name, option in zip(ascii_uppercase, shown, strict=False)]
    text = "\n".join(["Question:", text_field(row, "question"), "Options:", *lines])
    return PublishedQuestion(
        f"{text}\nAnswer: Let's think step by step.",
        letter,
        best=f"The answer is ({letter}).",
        subject=str(row.fields.get("category") or "general knowledge"),
    )


def gpqa(row: Row) -> PublishedQuestion:
    """A question with four options, the correct one first. Raises DataError for equal options."""
    names = ("Correct Answer", *(f"Incorrect Answer {i}" for i in (1, 2, 3)))
    options = tuple(text_field(row, name).strip() for name in names)
    return PublishedQuestion(text_field(row, "Question").strip(), options[0], options=options)


def instructed(kinds_known: Mapping[str, Kind], row: Row) -> PublishedQuestion:
    """A prompt and its instructions. Raises DataError for an instruction that cannot be checked.

    kinds_known: the kinds of instructions of the benchmark.
    """
    kinds, kwargs = row.fields.get("instruction_id_list"), row.fields.get("kwargs")
    # Some files have the arguments as one text of JSON.
    kwargs = parse_json(row, "kwargs", kwargs) if isinstance(kwargs, str) else kwargs
    if not isinstance(kinds, list) or not isinstance(kwargs, list) or len(kinds) != len(kwargs):
        raise DataError(
            f"{row.where}: 'instruction_id_list' and 'kwargs' must be lists of one length, got "
            f"{kinds!r:.80} and {kwargs!r:.80}"
        )
    if not kinds:
        raise DataError(f"{row.where}: 'instruction_id_list' must not be empty")
    try:
        instructions = tuple(
            instruction(kind, arguments or {}, kinds_known)
            for kind, arguments in zip(kinds, kwargs, strict=True)
        )
    except DataError as error:
        raise DataError(f"{row.where}: {error}") from error
    return PublishedQuestion(text_field(row, "prompt"), ", ".join(kinds), instructions=instructions)


def bbh(row: Row) -> PublishedQuestion:
    """A question with a target: an option such as "(A)", or a text."""
    truth = text_field(row, "target").strip()
    return PublishedQuestion(text_field(row, "input"), truth, best=f"So the answer is {truth}.")


def drop(row: Row) -> Several[PublishedQuestion]:
    """The questions of a row, in any of the three published forms.

    A row of the published file is a passage with all its questions, a row of the hub has one.
    """
    passage, pairs = text_field(row, "passage"), row.fields.get("qa_pairs", [row.fields])
    if not isinstance(pairs, list) or not all(isinstance(pair, Mapping) for pair in pairs):
        raise DataError(f"{row.where}: field 'qa_pairs' must be a list of objects, got {pairs!r}")
    return Several(
        _drop_question(Row(f"{row.where} question {i}", pair), passage)
        for i, pair in enumerate(pairs)
    )


def _drop_question(row: Row, passage: str) -> PublishedQuestion:
    spans = row.fields.get("answers_spans")
    answers: list[tuple[str, ...]]
    if isinstance(spans, Mapping):
        texts = tuple(str(text) for text in spans.get("spans", ()))
        answers = [texts, *((text,) for text in texts)]
    else:
        answers = [_drop_answer(answer) for answer in _annotators(row)]
    # A blank first part scores nothing in the published program.
    answers = [answer for answer in dict.fromkeys(answers) if answer and answer[0].strip()]
    if not answers:
        raise DataError(
            f"{row.where}: no answer in 'answer', 'validated_answers' or 'answers_spans'"
        )
    parts = "\n".join(answers[0])
    return PublishedQuestion(
        f"Passage: {passage}\n\nQuestion: {text_field(row, 'question')}",
        parts,
        best=f"<answer>{parts}</answer>",
        answers=tuple(answers),
    )


def _annotators(row: Row) -> list[Any]:
    validated = row.fields.get("validated_answers") or []
    # The hub has an object of lists in place of a list of objects.
    if isinstance(validated, Mapping):
        names = list(validated)
        validated = [
            dict(zip(names, values, strict=False))
            for values in zip(*(validated[name] for name in names), strict=False)
        ]
    return [row.fields.get("answer"), *validated]


def _drop_answer(answer: object) -> tuple[str, ...]:
    """Parts of an annotator's answer: its number, its texts, or its date; () for none."""
    if not isinstance(answer, Mapping):
        return ()
    if answer.get("number"):
        return (str(answer["number"]),)
    if answer.get("spans"):
        return tuple(map(str, answer["spans"]))
    date = answer.get("date") or {}
    return (" ".join(str(date.get(part) or "") for part in ("day", "month", "year")),)


def hotpotqa(row: Row) -> PublishedQuestion:
    """A question with its paragraphs, each with its title."""
    context = row.fields.get("context")
    if isinstance(context, Mapping):
        context = list(zip(context.get("title", ()), context.get("sentences", ()), strict=False))
    if not isinstance(context, list) or not all(len(part) == 2 for part in context):
        raise DataError(
            f"{row.where}: field 'context' must be titles with sentences: {context!r:.80}"
        )
    paragraphs = [f"{title}\n{''.join(sentences)}" for title, sentences in context]
    truth = text_field(row, "answer")
    text = "\n\n".join([*paragraphs, f"Question: {text_field(row, 'question')}"])
    return PublishedQuestion(text, truth, best=f"<answer>{truth}</answer>")


# Name of a benchmark -> the questions of one of its rows.
PARSERS: Mapping[str, Callable[[Row], PublishedQuestion | Several[PublishedQuestion]]] = {
    "aime": aime,
    "mmlu-pro": mmlu_pro,
    "gpqa": gpqa,
    "ifeval": partial(instructed, ifeval.KINDS),
    "ifbench": partial(instructed, ifbench.KINDS),
    "bbh": bbh,
    "drop": drop,
    "hotpotqa": hotpotqa,
}


Marker = Callable[[str, PublishedQuestion], tuple[Grade, Mapping[str, float]]]
"""Grade of a reply, and further figures of the benchmark as keys of an info."""


class PublishedEnv(DatasetEnv):
    """A question of a published benchmark, by its publisher's rule.

    The guide "Published benchmarks" has the rule, the columns and the differences of each.

    - Observation: the question.
    - Action: the reply. Text before `</think>` is ignored.
    - Reward: 1 for a success, else 0 (component "correct").
    - Info at the end: see `QuestionEnv` and `DatasetEnv`; "metric/NAME" for each figure of a
      benchmark that has several, such as "metric/f1", and "weight/NAME" for its weight in the mean.

    Args:
        benchmark: "aime", "mmlu-pro", "gpqa", "ifeval", "ifbench", "bbh", "drop" or "hotpotqa".
        data: path of a .jsonl, .jsonl.gz, .parquet, .json or .csv file, of a folder with such a
            file per split, or a hub id; None for the published data set, from the hub.
        config: part of a hub dataset, such as a task of BIG-Bench Hard.
        split: split of a hub dataset or a folder.
        fields: columns of the fields that the benchmark reads, by its publisher's names, or
            "question" and "answer" of AIME: see `load_rows`.
        on_bad_row: "skip" leaves out rows that cannot be asked or graded.
    """

    def __init__(
        self,
        benchmark: str,
        data: str | None = None,
        config: str | None = None,
        split: str | None = None,
        *,
        fields: Fields | None = None,
        on_bad_row: OnBadRow = "error",
        render_mode: str | None = None,
    ) -> None:
        self._benchmark = checked_choice("benchmark", benchmark, tuple(PARSERS))
        entry = PUBLISHED[benchmark]
        if data == "sample":
            raise ConfigError(f"{entry.id} has no sample; name a file (data='rows.jsonl')")
        rows = load_rows(
            data or entry.hub,
            PARSERS[benchmark],
            sample=Path(),
            config=config,
            split=split,
            kind="maths" if benchmark == "aime" else "",
            fields=fields,
            on_bad_row=on_bad_row,
        )
        super().__init__(rows, render_mode)
        # Raised here, because no action may raise later.
        kinds = {i.kind for question in rows for i in question.instructions}
        for grader in (ifeval, ifbench):
            grader.require_packages(kinds & grader.KINDS.keys())
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
        return option_order(row, rng)

    def turn(self, action: str) -> Turn:
        """Grade the reply and end the episode."""
        question = self.question
        assert isinstance(question, PublishedQuestion), "ask() returns no other"
        reply, rule = after_thought(action)
        grade, figures = MARKERS[self._benchmark](reply or "", question)
        self.verdict = f"{action}\n\n{'correct' if grade.correct else 'wrong'}"
        info = {
            "answer": grade.answer or "",
            "rule": grade.rule if reply else rule,
            "truth": question.truth,
            **{name: float(value) for name, value in figures.items()},
            **self.about,
        }
        return end(success=grade.correct, info=info, correct=grade.correct)

    def best_action(self) -> str:
        """A correct reply. Raises NoOracle where none is known."""
        best = getattr(self.question, "best", "")
        if not best:
            raise NoOracle(f"{PUBLISHED[self._benchmark].title}: rows have no reply that is right")
        return str(best)


def option_order(question: PublishedQuestion, rng: np.random.Generator) -> PublishedQuestion:
    """The question with its options in another order, as GPQA prints them."""
    order = [int(i) for i in rng.permutation(len(question.options))]
    lines = [f"({ascii_uppercase[k]}) {question.options[i]}" for k, i in enumerate(order)]
    letter = ascii_uppercase[order.index(0)]
    text = "\n".join(
        [f"What is the correct answer to this question: {question.text}", "", "Choices:", *lines]
    )
    return replace(question, text=text, truth=letter, best=f"The correct answer is ({letter})")


def _by_letter(letter_in: Callable[[str], str | None]) -> Marker:
    def mark(reply: str, question: PublishedQuestion) -> tuple[Grade, Mapping[str, float]]:
        letter = letter_in(reply)
        return Grade(letter == question.truth, letter, "letter" if letter else "none"), {}

    return mark


def _bbh(reply: str, question: PublishedQuestion) -> tuple[Grade, Mapping[str, float]]:
    answer = bbh_answer(reply, question.truth)
    rule = "answer is" if "answer is" in reply else "last line"
    return Grade(answer == question.truth, answer, rule), {}


def _drop(reply: str, question: PublishedQuestion) -> tuple[Grade, Mapping[str, float]]:
    answer, rule = extract(reply)
    parts = [part.strip() for part in (answer or "").splitlines() if part.strip()]
    em, f1 = drop_scores(parts, question.answers) if parts else (0.0, 0.0)
    return Grade(em == 1, answer, rule), {"metric/em": em, "metric/f1": f1}


def _hotpotqa(reply: str, question: PublishedQuestion) -> tuple[Grade, Mapping[str, float]]:
    answer, rule = extract(reply)
    em, f1 = hotpot_scores(answer, question.truth) if answer else (0.0, 0.0)
    return Grade(em == 1, answer, rule), {"metric/em": em, "metric/f1": f1}


def _instructed(
    kinds: Mapping[str, Kind], loosely: bool, reply: str, question: PublishedQuestion
) -> tuple[Grade, Mapping[str, float]]:
    """The grade of a reply to instructions. loosely: True if the loose rule decides it."""
    strict, loose = (
        instructions_followed(reply, question.instructions, loose=rule, kinds=kinds)
        for rule in (False, True)
    )
    followed = loose if loosely else strict
    pairs = zip(question.instructions, followed, strict=True)
    broken = [i.kind for i, holds in pairs if not holds]
    count = len(strict)
    rule = f"not followed: {', '.join(broken)}" if broken else "followed"
    return Grade(all(followed), reply, rule), {
        "metric/prompt_strict": all(strict),
        "metric/prompt_loose": all(loose),
        "metric/instruction_strict": sum(strict) / count,
        "metric/instruction_loose": sum(loose) / count,
        # Instruction-level accuracy is over all instructions, not over prompts.
        "weight/instruction_strict": count,
        "weight/instruction_loose": count,
    }


MARKERS: Mapping[str, Marker] = {
    "aime": lambda reply, question: (grade_number(reply, question.truth), {}),
    "mmlu-pro": _by_letter(mmlu_pro_letter),
    "gpqa": _by_letter(gpqa_letter),
    "ifeval": partial(_instructed, ifeval.KINDS, False),
    "ifbench": partial(_instructed, ifbench.KINDS, True),
    "bbh": _bbh,
    "drop": _drop,
    "hotpotqa": _hotpotqa,
}
