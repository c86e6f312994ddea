"""Questions from the rows of published benchmarks, in the columns of their publishers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

from ludic_gym.data.row import Row, renamed, text_field
from ludic_gym.envs.core.question import Question
from ludic_gym.errors import DataError
from ludic_gym.graders.ifeval import Instruction, instruction


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


def aime(row: Row) -> Sequence[PublishedQuestion]:
    """A problem whose answer is an integer from 0 to 999. Raises DataError for any other."""
    row = renamed(row, {"Problem": "problem", "Answer": "answer"})
    truth = str(row.fields.get("answer")).strip()
    if not (truth.isdecimal() and len(truth) <= 3):
        raise DataError(f"{row.where}: field 'answer' must be from 0 to 999, got {truth!r}")
    truth = str(int(truth))
    return [PublishedQuestion(text_field(row, "problem"), truth, best=f"\\boxed{{{truth}}}")]


def mmlu_pro(row: Row) -> Sequence[PublishedQuestion]:
    """A question with up to ten options in the order of the row, without those that are N/A."""
    options, letter = row.fields.get("options"), text_field(row, "answer")
    if not isinstance(options, list) or not all(isinstance(o, str) for o in options):
        raise DataError(f"{row.where}: field 'options' must be a list of texts, got {options!r}")
    kept = [option for option in options if option != "N/A"]
    if letter not in ascii_uppercase[: len(kept)]:
        last = ascii_uppercase[len(kept) - 1]
        raise DataError(f"{row.where}: field 'answer' must be a letter up to {last}, got {letter}")
    lines = [f"{name}. {option}" for name, option in zip(ascii_uppercase, kept, strict=False)]
    text = "\n".join(["Question:", text_field(row, "question"), "Options:", *lines])
    return [
        PublishedQuestion(
            f"{text}\nAnswer: Let's think step by step.",
            letter,
            best=f"The answer is ({letter}).",
            subject=str(row.fields.get("category") or "general knowledge"),
        )
    ]


def gpqa(row: Row) -> Sequence[PublishedQuestion]:
    """A question with four options, the correct one first. Raises DataError for equal options."""
    names = ("Correct Answer", *(f"Incorrect Answer {i}" for i in (1, 2, 3)))
    options = tuple(text_field(row, name).strip() for name in names)
    return [PublishedQuestion(text_field(row, "Question").strip(), options[0], options=options)]


def ifeval(row: Row) -> Sequence[PublishedQuestion]:
    """A prompt and its instructions. Raises DataError for an instruction that cannot be checked."""
    kinds, given = row.fields.get("instruction_id_list"), row.fields.get("kwargs")
    # Some files have the arguments as one text of JSON.
    given = _json(row, given) if isinstance(given, str) else given
    if not isinstance(kinds, list) or not isinstance(given, list) or len(kinds) != len(given):
        raise DataError(
            f"{row.where}: 'instruction_id_list' and 'kwargs' must be lists of one length, got "
            f"{kinds!r:.80} and {given!r:.80}"
        )
    if not kinds:
        raise DataError(f"{row.where}: 'instruction_id_list' must not be empty")
    try:
        found = tuple(
            instruction(kind, arguments or {}) for kind, arguments in zip(kinds, given, strict=True)
        )
    except DataError as error:
        raise DataError(f"{row.where}: {error}") from error
    return [PublishedQuestion(text_field(row, "prompt"), ", ".join(kinds), instructions=found)]


def bbh(row: Row) -> Sequence[PublishedQuestion]:
    """A question with a target: an option such as "(A)", or a text."""
    truth = text_field(row, "target").strip()
    return [PublishedQuestion(text_field(row, "input"), truth, best=f"So the answer is {truth}.")]


def drop(row: Row) -> Sequence[PublishedQuestion]:
    """The questions of a row, in any of the three published forms.

    A row of the published file is a passage with all its questions, a row of the hub has one.
    """
    passage, pairs = text_field(row, "passage"), row.fields.get("qa_pairs", [row.fields])
    if not isinstance(pairs, list) or not all(isinstance(pair, Mapping) for pair in pairs):
        raise DataError(f"{row.where}: field 'qa_pairs' must be a list of objects, got {pairs!r}")
    return [_drop_question(Row(f"{row.where} question {i}", pair), passage) for i, pair in enumerate(pairs)]


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


def hotpotqa(row: Row) -> Sequence[PublishedQuestion]:
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
    return [PublishedQuestion(text, truth, best=f"<answer>{truth}</answer>")]


def _json(row: Row, text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{row.where}: not JSON ({error}): {text[:80]!r}") from error


# Name of a benchmark -> the questions of one of its rows.
PARSERS: Mapping[str, Callable[[Row], Sequence[PublishedQuestion]]] = {
    "aime": aime,
    "mmlu-pro": mmlu_pro,
    "gpqa": gpqa,
    "ifeval": ifeval,
    "bbh": bbh,
    "drop": drop,
    "hotpotqa": hotpotqa,
}
