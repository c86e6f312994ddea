"""Codes in which a text may hide an answer: readings of the text, and a search for the answer."""

from __future__ import annotations

import base64
import binascii
import hashlib
import html
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from string import ascii_lowercase
from urllib.parse import unquote

# Characters without width, and those of Unicode's tags, which show nothing.
_INVISIBLE = re.compile("[\u200b-\u200f\u2060-\u2064\ufeff\u00ad]")
_TAGS = range(0xE0020, 0xE007F)
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?![\w.]*\w)")
SHIFTS = (*range(-7, 0), *range(1, 8))
# A shorter answer is in a code by chance, or is no text.
SHORTEST = 3
HASHES = ("md5", "sha1", "sha256")
# Words by which a task says itself that it is about a code.
ABOUT_CODES = re.compile(
    r"revers|backward|mirror|palindrom|cipher|caesar|decod|encod|encrypt|base64|base 64|hexa"
    r"|binary|rot13|ascii|morse|unicode|emoji|hash|letters|unscrambl|anagram",
    re.IGNORECASE,
)


def codes_of(text: str, answer: str) -> Iterator[str]:
    """Names of the codes in which the text has the answer as a whole word; "plain" is the first.

    >>> list(codes_of("id: sirap", "Paris")), list(codes_of("the answer is Paris", "Paris"))
    (['reversed'], ['plain'])
    >>> list(codes_of("[80, 97, 114, 105, 115]", "Paris")), list(codes_of("Paris", "Lima"))
    (['character codes'], [])
    """
    lower = answer.casefold()
    if has_word(text.casefold(), lower):
        yield "plain"
    if len(answer) < SHORTEST:
        return
    # Of a palindrome, the answer itself is each of these.
    yield from (name for name, reading in readings(text).items() if has_word(reading, lower))
    if any(shifted(answer, by).casefold() in text.casefold() for by in SHIFTS):
        yield "shifted characters"
    if any(hashed in text.casefold() for hashed in hashes(answer)):
        yield "a hash"
    if _has_codes(text, answer):
        yield "character codes"


def has_word(text: str, answer: str) -> bool:
    """True if the text has the answer as a whole word."""
    # Digits of a decimal number, such as 14 of 3.14, are no word of their own.
    return answer in text and re.search(rf"(?<![\w.]){re.escape(answer)}(?!\w)", text) is not None


@lru_cache(maxsize=4096)
def readings(text: str) -> Mapping[str, str]:
    """The text as each code reads it, in small letters; codes that it does not use are left out."""
    lower = text.casefold()
    texts = {"reversed": lower[::-1]}
    texts |= {f"letters moved by {by}": lower.translate(_ROTATED[by]) for by in range(1, 26)}
    texts |= {name: " ".join(read(text)).casefold() for name, read in READERS.items()}
    return {name: reading for name, reading in texts.items() if reading and reading != lower}


def _entities(text: str) -> Iterator[str]:
    for run in re.findall(r"(?:\w|%[0-9a-fA-F]{2}|&#?\w+;)+", text):
        plain = html.unescape(unquote(run))
        yield plain if plain != run else ""


def _hexadecimal(text: str) -> Iterator[str]:
    for run in re.findall(r"(?:[0-9a-fA-F]{2}[\s:]?){3,}", text):
        digits = re.sub(r"[\s:]", "", run)
        yield bytes.fromhex(digits).decode("utf-8", "ignore")


def _binary(text: str) -> Iterator[str]:
    for run in re.findall(r"(?:[01]{7,8}\s?){2,}", text):
        yield _from_bits(re.sub(r"\s", "", run))


def _base64(text: str) -> Iterator[str]:
    for run in re.findall(r"[A-Za-z0-9+/_-]{4,}", text):
        plain = run.replace("-", "+").replace("_", "/")
        yield _decoded(lambda data: base64.b64decode(data), plain + "=" * (-len(plain) % 4))


def _base32(text: str) -> Iterator[str]:
    for run in re.findall(r"[A-Z2-7a-z]{6,}", text):
        yield _decoded(lambda data: base64.b32decode(data, True), run + "=" * (-len(run) % 8))


def _invisible(text: str) -> Iterator[str]:
    marks = "".join(_INVISIBLE.findall(text))
    kinds = sorted(set(marks))
    for zero in kinds:
        yield _from_bits("".join("0" if mark == zero else "1" for mark in marks))
    yield "".join(chr(ord(c) - 0xE0000) for c in text if ord(c) in _TAGS)


def _spaced(text: str) -> Iterator[str]:
    for run in re.findall(r"(?<!\w)(?:\w[^\w\n]{1,2}){2,}\w(?!\w)", text):
        yield re.sub(r"\W", "", run)


def _first_letters(text: str) -> Iterator[str]:
    words, lines = re.findall(r"\w+", text), text.splitlines()
    yield "".join(word[0] for word in words)
    yield "".join(line.strip()[:1] for line in lines)
    yield "".join(word[0] for word in words if word[0].isupper())


READERS: Mapping[str, Callable[[str], Iterator[str]]] = {
    "entities": _entities,
    "hexadecimal digits": _hexadecimal,
    "binary digits": _binary,
    "base64": _base64,
    "base32": _base32,
    "invisible characters": _invisible,
    "separated letters": _spaced,
    "first letters": _first_letters,
}
"""Texts that a code reads in a text, by the name of the code."""

_ROTATED = {
    by: str.maketrans(ascii_lowercase, ascii_lowercase[by:] + ascii_lowercase[:by])
    for by in range(1, 26)
}


def shifted(text: str, by: int) -> str:
    """The text with the code of each character larger by a number."""
    return "".join(chr(max(0, ord(c) + by)) for c in text)


def hashes(answer: str) -> Iterator[str]:
    """The usual hashes of the answer as it stands and in small letters."""
    for text in (answer, answer.casefold()):
        for name in HASHES:
            yield hashlib.new(
                name, text.encode(errors="replace"), usedforsecurity=False
            ).hexdigest()


def decides(numbers: Sequence[int], answers: Sequence[int]) -> bool:
    """True if a factor and a sum, or a mask of bits, make nine in ten numbers the answers.

    >>> decides([43, 18, 91, 60], [42, 17, 90, 59]), decides([43, 18, 91, 60], [1, 2, 3, 4])
    (True, False)
    """
    pairs = list(zip(numbers, answers, strict=True))
    most = 0.9 * len(pairs)
    if sum(number ^ answer == numbers[0] ^ answers[0] for number, answer in pairs) >= most:
        return True
    for number, answer in pairs[1:4]:
        if number == numbers[0] or answer == answers[0]:
            continue
        factor = Fraction(answer - answers[0], number - numbers[0])
        rest = answers[0] - factor * numbers[0]
        if sum(factor * n + rest == a for n, a in pairs) >= most:
            return True
    return False


def numbers_of(text: str) -> list[int]:
    """The whole numbers of a text, at most the first and the last six."""
    # Longer ones are no sums of anything that a person would ask.
    found = [int(one) for one in _NUMBER.findall(text) if len(one) < 19]
    return found if len(found) <= 12 else [*found[:6], *found[-6:]]


def _has_codes(text: str, answer: str) -> bool:
    """True if numbers of the text are the codes of the answer's characters, moved by a number."""
    numbers = [int(one) for one in re.findall(r"\d{1,4}", text)]
    size = len(answer)
    for start in range(min(len(numbers), 400) - size + 1):
        apart = {n - ord(c) for n, c in zip(numbers[start : start + size], answer, strict=True)}
        if len(apart) == 1 and len(set(answer)) > 1:
            return True
    return False


def _from_bits(bits: str) -> str:
    """The text of bits, by eight and by seven in a character."""
    texts = []
    for size in (8, 7):
        whole = [bits[i : i + size] for i in range(0, len(bits) - size + 1, size)]
        texts.append("".join(chr(int(one, 2)) for one in whole))
    return " ".join(texts)


def _decoded(decode: Callable[[str], bytes], text: str) -> str:
    try:
        return decode(text).decode("utf-8")
    except (binascii.Error, ValueError):
        return ""
