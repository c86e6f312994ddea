"""The 25 kinds of instructions of IFEval, by the rules of its published program.

Zhou et al. 2023, arXiv:2311.07911. A reply follows an instruction or does not:

>>> no_comma = Instruction("punctuation:no_comma")
>>> instructions_followed("One two", [no_comma]), instructions_followed("One, two", [no_comma])
((True,), (False,))

Sentences need the package nltk with its data "punkt_tab", words in capitals nltk, and languages
langdetect: extra `ifeval`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from ludic_gym.errors import DataError, GraderError
from ludic_gym.packages import optional

EXTRA = "ludic-gym[ifeval]"
# Quotation marks are removed only at the start of a word, the others end it.
_ENDS_WORD = re.compile(r"[.,?!'\"]")
_HIGHLIGHT = re.compile(r"\*[^\n\*]*\*")
_DOUBLE_HIGHLIGHT = re.compile(r"\*\*[^\n\*]*\*\*")
_FENCES = ("```json", "```Json", "```JSON", "```")
_OPTIONS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
# The published patterns begin with "\s*", which changes no verdict and takes quadratic time.
_POSTSCRIPTS = {"P.P.S": r"p\.\s?p\.\s?s", "P.S.": r"p\.\s?s\."}


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: its kind, a key of `KINDS`, and its arguments, as a row has them."""

    kind: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


Check = Callable[[str, Mapping[str, Any]], bool]


def instructions_followed(
    reply: str,
    instructions: Sequence[Instruction],
    *,
    loose: bool = False,
    kinds: Mapping[str, Kind] | None = None,
) -> tuple[bool, ...]:
    """For each instruction, True if the reply follows it; a blank reply follows none.

    loose: one of eight versions is enough: the reply without its first line, its last line and its
        asterisks, in any combination.
    kinds: None: those of IFEval.
    Raises MissingPackage, or GraderError without the data of nltk.
    """
    versions, checks = [reply], kinds or KINDS
    if loose:
        lines = reply.split("\n")
        versions += ["\n".join(cut).strip() for cut in (lines[1:], lines[:-1], lines[1:-1])]
        versions += [version.replace("*", "") for version in versions]
    return tuple(
        any(v.strip() and checks[i.kind].check(v, i.arguments) for v in versions)
        for i in instructions
    )


def count_check(name: str, relation: str, count: Callable[[str, Mapping[str, Any]], int]) -> Check:
    """Check of a count that is less than, or at least, the argument `name`.

    relation: the argument with "less than" or "at least".
    """

    def check(text: str, arguments: Mapping[str, Any]) -> bool:
        size, wanted = count(text, arguments), arguments[name]
        return bool(size < wanted if arguments[relation] == "less than" else size >= wanted)

    return check


def keyword_count(text: str, arguments: Mapping[str, Any]) -> int:
    """Occurrences of the keyword in any case, inside words too."""
    return len(re.findall(re.escape(arguments["keyword"].strip()), text, re.IGNORECASE))


def letter_count(text: str, arguments: Mapping[str, Any]) -> int:
    """Occurrences of the letter in any case."""
    return text.lower().count(arguments["letter"].strip().lower())


def has_keywords(text: str, arguments: Mapping[str, Any]) -> bool:
    """True if every keyword occurs in any case, inside a word too."""
    return all(re.search(re.escape(word), text, re.IGNORECASE) for word in arguments["keywords"])


def has_no_forbidden(text: str, arguments: Mapping[str, Any]) -> bool:
    """True if no forbidden word occurs as a whole word in any case."""
    words = (re.escape(word) for word in arguments["forbidden_words"])
    return not any(re.search(rf"\b{word}\b", text, re.IGNORECASE) for word in words)


def sentence_count(text: str, arguments: Mapping[str, Any]) -> int:
    """Number of sentences by nltk's Punkt. Raises MissingPackage, or GraderError without data."""
    return len(sentence_tokenizer().tokenize(text))


@cache
def sentence_tokenizer() -> Any:  # noqa: ANN401 (nltk has no types)
    """The tokenizer Punkt of nltk. Raises MissingPackage, or GraderError without its data."""
    tokenize = optional("nltk.tokenize", EXTRA)
    try:
        return tokenize.PunktTokenizer("english")
    except LookupError as error:
        raise GraderError(
            "sentences are counted with nltk's data punkt_tab, which is not there: run "
            "`python -m nltk.downloader punkt_tab`"
        ) from error


def capital_count(text: str, arguments: Mapping[str, Any]) -> int:
    """Number of words in capitals, by nltk's word tokenizer. Raises MissingPackage."""
    # nltk.word_tokenize splits sentences before, which changes no count: sentences end at white
    # space, and a full stop is in capitals neither alone nor after a word.
    tokenizer = optional("nltk.tokenize", EXTRA).NLTKWordTokenizer()
    return sum(word.isupper() for word in tokenizer.tokenize(text))


def is_language(text: str, arguments: Mapping[str, Any]) -> bool:
    """True if langdetect finds the language, or finds none at all, as in a text of numbers."""
    detector = optional("langdetect", EXTRA)
    # Without a seed, langdetect gives short texts another language in each run.
    detector.DetectorFactory.seed = 0
    try:
        return bool(detector.detect(text) == arguments["language"])
    except detector.LangDetectException:
        return True


def in_english(text: str) -> bool:
    """True if langdetect finds English, or no language at all."""
    return is_language(text, {"language": "en"})


def divided_paragraphs(text: str, arguments: Mapping[str, Any]) -> bool:
    """True for as many paragraphs, between lines of three asterisks, as are wanted."""
    parts = text.split("***")
    count = len(parts)
    for place, part in enumerate(parts):
        if not part.strip():
            if place not in (0, len(parts) - 1):
                return False
            count -= 1
    return bool(count == arguments["num_paragraphs"])


def has_first_word(text: str, arguments: Mapping[str, Any]) -> bool:
    """True for the wanted number of paragraphs, and the wanted first word of one of them.

    Blank paragraphs are not counted, but keep their place, as in the published program.
    """
    parts = text.split("\n\n")
    count = sum(1 for part in parts if part.strip())
    place = arguments["nth_paragraph"]
    if place > count or not parts[place - 1].strip():
        return False
    word = parts[place - 1].split()[0].lstrip("'").lstrip('"')
    word = _ENDS_WORD.split(word)[0].lower()
    return bool(count == arguments["num_paragraphs"] and word == arguments["first_word"].lower())


def has_postscript(text: str, arguments: Mapping[str, Any]) -> bool:
    """True if the postscript's mark occurs in any case, anywhere."""
    mark = arguments["postscript_marker"].strip()
    return re.search(_POSTSCRIPTS.get(mark, re.escape(mark.lower())), text.lower()) is not None


def has_bullets(text: str, arguments: Mapping[str, Any]) -> bool:
    """True for exactly as many lines that begin with one asterisk or with a hyphen."""
    lines = [line.lstrip() for line in text.split("\n")]
    count = sum(line.startswith("-") for line in lines)
    # The published pattern, "^\\s*\\*[^\\*].*$", takes quadratic time. Its "[^\\*]" may be a line
    # break: an asterisk alone takes the next line with it.
    place = 0
    while place < len(lines):
        alone = lines[place] == "*" and place + 1 < len(lines)
        count += alone or (lines[place][:1] == "*" and lines[place][1:2] not in ("", "*"))
        place += 2 if alone else 1
    return bool(count == arguments["num_bullets"])


def has_highlights(text: str, arguments: Mapping[str, Any]) -> bool:
    """True for at least as many texts in single or double asterisks on one line."""
    single = sum(1 for part in _HIGHLIGHT.findall(text) if part.strip("*").strip())
    double = sum(1 for part in _DOUBLE_HIGHLIGHT.findall(text) if part[2:-2].strip())
    return bool(single + double >= arguments["num_highlights"])


def has_sections(text: str, arguments: Mapping[str, Any]) -> bool:
    """True for at least as many marks of sections, such as "Section 1"."""
    mark = re.escape(arguments["section_spliter"].strip())
    return bool(len(re.findall(rf"{mark}\s?\d+", text)) >= arguments["num_sections"])


def is_json(text: str, arguments: Mapping[str, Any]) -> bool:
    """True for a text that is JSON, with or without a fence."""
    text = text.strip()
    for fence in _FENCES:
        text = text.removeprefix(fence)
    try:
        json.loads(text.removesuffix("```").strip())
    # RecursionError: ten thousand open brackets.
    except (ValueError, RecursionError):
        return False
    return True


def has_title(text: str, arguments: Mapping[str, Any]) -> bool:
    """True for a text in double angle brackets that is not blank."""
    for line in text.split("\n"):
        start, end = line.find("<<"), line.rfind(">>")
        if 0 <= start <= end - 3 and line[start : end + 2].lstrip("<").rstrip(">").strip():
            return True
    return False


def has_placeholders(text: str, arguments: Mapping[str, Any]) -> bool:
    """True for at least as many texts in square brackets, each on one line."""
    # "[" begins one only if "]" follows in its line, which a pattern would look up for each "[".
    count = sum("[" in piece for line in text.split("\n") for piece in line.split("]")[:-1])
    return bool(count >= arguments["num_placeholders"])


def has_two_responses(text: str, arguments: Mapping[str, Any]) -> bool:
    """True for two different texts between six asterisks."""
    parts = text.split("******")
    if any(not part.strip() for part in parts[1:-1]):
        return False
    responses = [part.strip() for part in parts if part.strip()]
    return len(responses) == 2 and responses[0] != responses[1]


def repeats_prompt(text: str, arguments: Mapping[str, Any]) -> bool:
    """True if the text begins with the request, in any case."""
    return text.strip().lower().startswith(arguments["prompt_to_repeat"].strip().lower())


def ends_with(text: str, arguments: Mapping[str, Any]) -> bool:
    """True if the text ends with the phrase in any case; quotation marks around it do not count."""
    return text.strip().strip('"').lower().endswith(arguments["end_phrase"].strip().lower())


def is_quoted(text: str, arguments: Mapping[str, Any]) -> bool:
    """True for a text in straight double quotation marks."""
    text = text.strip()
    return len(text) > 1 and text[0] == '"' and text[-1] == '"'


@dataclass(frozen=True, slots=True)
class Kind:
    """Check of a kind, and the types of its arguments by name."""

    check: Check
    arguments: Mapping[str, type]


def _kind(check: Check, **arguments: type) -> Kind:
    return Kind(check, arguments)


KINDS: Mapping[str, Kind] = {
    "keywords:existence": _kind(has_keywords, keywords=list),
    "keywords:frequency": _kind(
        count_check("frequency", "relation", keyword_count),
        keyword=str,
        frequency=int,
        relation=str,
    ),
    "keywords:forbidden_words": _kind(has_no_forbidden, forbidden_words=list),
    "keywords:letter_frequency": _kind(
        count_check("let_frequency", "let_relation", letter_count),
        letter=str,
        let_frequency=int,
        let_relation=str,
    ),
    "language:response_language": _kind(is_language, language=str),
    "length_constraints:number_sentences": _kind(
        count_check("num_sentences", "relation", sentence_count), num_sentences=int, relation=str
    ),
    "length_constraints:number_paragraphs": _kind(divided_paragraphs, num_paragraphs=int),
    "length_constraints:number_words": _kind(
        count_check("num_words", "relation", lambda text, arguments: len(re.findall(r"\w+", text))),
        num_words=int,
        relation=str,
    ),
    "length_constraints:nth_paragraph_first_word": _kind(
        has_first_word, num_paragraphs=int, nth_paragraph=int, first_word=str
    ),
    "detectable_content:number_placeholders": _kind(has_placeholders, num_placeholders=int),
    "detectable_content:postscript": _kind(has_postscript, postscript_marker=str),
    "detectable_format:number_bullet_lists": _kind(has_bullets, num_bullets=int),
    "detectable_format:constrained_response": _kind(
        lambda text, arguments: any(option in text for option in _OPTIONS)
    ),
    "detectable_format:number_highlighted_sections": _kind(has_highlights, num_highlights=int),
    "detectable_format:multiple_sections": _kind(
        has_sections, section_spliter=str, num_sections=int
    ),
    "detectable_format:json_format": _kind(is_json),
    "detectable_format:title": _kind(has_title),
    "combination:two_responses": _kind(has_two_responses),
    "combination:repeat_prompt": _kind(repeats_prompt, prompt_to_repeat=str),
    "startend:end_checker": _kind(ends_with, end_phrase=str),
    "startend:quotation": _kind(is_quoted),
    "change_case:capital_word_frequency": _kind(
        count_check("capital_frequency", "capital_relation", capital_count),
        capital_frequency=int,
        capital_relation=str,
    ),
    "change_case:english_capital": _kind(
        lambda text, arguments: text.isupper() and in_english(text),
    ),
    "change_case:english_lowercase": _kind(
        lambda text, arguments: text.islower() and in_english(text),
    ),
    "punctuation:no_comma": _kind(lambda text, arguments: "," not in text),
}


def instruction(
    kind: str, arguments: Mapping[str, Any], kinds: Mapping[str, Kind] = KINDS
) -> Instruction:
    """The instruction of a row. Raises DataError for an unknown kind or a missing argument.

    arguments: by name; those that are None, and those of other kinds, are left out.
    kinds: those of the benchmark.

    >>> instruction("keywords:existence", {"keywords": ["sea"], "letter": None}).arguments
    {'keywords': ['sea']}
    """
    if kind not in kinds:
        raise DataError(f"no kind of instruction {kind!r}; there are {', '.join(kinds)}")
    checked = {}
    for name, expected in kinds[kind].arguments.items():
        value = arguments.get(name)
        # Columns of a table with missing values turn whole numbers into floats.
        if expected is int and isinstance(value, float) and value.is_integer():
            value = int(value)
        # Texts and lists are not blank, numbers not negative.
        if expected is int:
            is_good = type(value) is int and value >= (name in _FROM_1)
        else:
            texts = value if isinstance(value, list) and expected is list else [value]
            is_good = all(isinstance(text, str) and text.strip() for text in texts)
            is_good = is_good and isinstance(value, expected) and bool(texts)
        if not is_good:
            raise DataError(f"{kind} needs {name}, {_WANTED[expected]}, got {value!r}")
        if name.endswith("relation") and value not in ("less than", "at least"):
            raise DataError(f'{kind}: {name} is "less than" or "at least", got {value!r}')
        checked[name] = value
    return Instruction(kind, checked)


_FROM_1 = ("nth_paragraph", "N", "n", "m")
_WANTED = {int: "a whole number", str: "a text", list: "a list of texts"}


def require_packages(kinds: Iterable[str]) -> None:
    """Raise MissingPackage, or GraderError without nltk's data, if a kind cannot be checked."""
    for kind in set(kinds):
        if kind == "length_constraints:number_sentences":
            sentence_tokenizer()
        elif kind == "change_case:capital_word_frequency":
            optional("nltk.tokenize", EXTRA)
        elif kind.startswith(("language:", "change_case:")):
            optional("langdetect", EXTRA)
