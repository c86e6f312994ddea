"""Grader of maths: an exact comparison first, then math-verify in a process of its own.

sympy has no limit of time or memory that holds for every expression, and a thread cannot be
killed. The processes serve all graders of this one; each starts when it is needed.
"""

import atexit
import importlib.util
import json
import os
import re
import select
import subprocess
import sys
import threading
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache

from ludic_gym.errors import ConfigError, DataError, GraderError
from ludic_gym.graders import latex, units
from ludic_gym.graders.extract import LONGEST as MOST
from ludic_gym.graders.extract import Grade, after_thought, boxed, braced, found_answers
from ludic_gym.graders.latex import in_latex
from ludic_gym.graders.numeric import Number, changes_number, marked_number

# Answers in prose that marks them by no tag and no box.
_SPAN = re.compile(r"\$\$(.+?)\$\$|\\\[(.+?)\\\]|\\\((.+?)\\\)|\$([^$\n]+?)\$", re.DOTALL)
# Its name is no word of prose.
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\s?\{[a-z]+\*?\}")
_WORD = re.compile(r"(?<!\\)\b[A-Za-z]{2,}\b")
_MARKUP = re.compile(r"<\|\w+\|>.*|\*\*|`", re.DOTALL)
_SENTENCE = re.compile(r"(?<=\.)\s+|(?<=[A-Za-z$][!?])\s+|\n+")
_CONCLUSION = re.compile(r"\b(?:therefore|thus|hence|so|final|finally|in total)\b", re.IGNORECASE)
_VERB = re.compile(r"\b(?:is|are|equals|get|gives|be|by)(?![a-z])|:(?!\d)", re.IGNORECASE)
_NUMBER = re.compile(
    r"(?<![\w.,/])[-\u2212]?[$€£]?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:\s?/\s?\d+)?%?(?![\w/^])"
)
_DOUBT = re.compile(
    r"\b(?:or|either|neither|nor|not|isn't|maybe|perhaps|possibly|probably|might|could|guess|unsure"
    r"|wrong|incorrect|false|unknown|cannot|can't|think|unless)\b|\?",
    re.IGNORECASE,
)
_PUNCTUATION = re.compile(r"[.,:;!\s]+$")
CPU_S = 5.0
# Much longer than the CPU time: a process on a busy machine is slow, not stuck.
DEADLINE_S = 120.0
VERDICTS = ("equal", "different", "refused")
# Other systems have no select for pipes, and no memory limits.
IS_POSIX = os.name == "posix"
# A longer answer is not given to math-verify: it was not meant as a value.
LONGEST = 300
# The parser's time is exponential in the depth of brackets.
DEEPEST = 10
# No zeros in front and no -0: equal numbers must be equal texts.
_INTEGER = re.compile(r"-?[1-9]\d{0,14}|0")
_PLAIN_NUMBER = re.compile(rf"\\boxed\{{({_INTEGER.pattern})\}}|{_INTEGER.pattern}")
_TEXT = re.compile(r"\\(?:text|textbf|textrm|textit|mathrm|mathbf|mbox)\s?\{([^{}]*)\}")
_BOLD = re.compile(r"\\(?:mathbf|boldsymbol|bm|pmb)\s?(?=\{)")
# Numbers side by side; not an index or a power, such as that of a logarithm, before a number, not a
# whole part before its fraction, and not a group of thousands.
_APART = re.compile(r"(?<![_^])\d(?:\s|~|\\q?quad(?![a-z])|\\[,;:! ])+(?!\d+\s?/|\d{3}(?!\d))\d")
# An answer with these may name two values, of which one may be right, or deny it.
_HEDGES = re.compile(
    r"\\boxed|\b(?:or|and|either|neither|nor|not|isn't|maybe|perhaps|possibly|probably|might|could"
    r"|guess|unsure|unknown|between|versus|vs|instead)\b|\?|\\(?:lor|land|vee|wedge|neg|not|nmid)\b",
    re.IGNORECASE,
)
_WORDS = re.compile(r"(?:[Nn]o )?[A-Za-z][a-z]{2,}(?:[ -][A-Za-z]+)*")
# The beginning of a sentence that says the value.
_SAID = re.compile(
    r"(?:\\text\s?\{)?\s*(?:(?:thus|so|therefore|hence),?\s)?(?:the|there|our|my|it|this)\b"
    r"[^{}$\\\d.!?]{0,80}?\b(?:is|are|equals|be|has|gives)\b:?\s*\}?\s*(?=\S)",
    re.IGNORECASE,
)
_SCIENTIFIC = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)[eE]([-+]?\d{1,3})(?![\w.])")
_MIXED = re.compile(
    r"(?<![\d.,/^_])(\d+)(?:\s+(\d+)\s?/\s?(\d+)(?![\d/])|\s*\\[dt]?frac\{(\d+)\}\{(\d+)\})"
)
_CURRENCY = re.compile(r"\\?[$€£]")
_PERCENT = re.compile(r"\\?%|(?<=\d)\s?[AaPp]\.?\s?[Mm]\b\.?")
_COMMA = re.compile(r",(?=\S)")
_APPROXIMATE = re.compile(r"\\approx(?![a-z])|≈")
_ANGLE = re.compile(r"(\d+(?:\.\d+)?)\s?(?:\^\s?\{?\\circ\}?|degrees?\b)")
_TRIGONOMETRIC = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-z])")
# The set of all x with a property.
_BUILDER = re.compile(
    r"\\?\{\s*[a-z](?:\s*\\in\s*\\mathbb\{R\})?\s*(?::|\||\\mid(?![a-z])|\\vert(?![a-z]))(.*)\\?\}"
)
_UNBOUNDED = re.compile(r"\\operatorname\s?\{?\s?(?:eig|diagonal|svd|SVD|null|orth|rref|rank)")


def grade_maths(text: str, truth: str, *, question: str = "") -> Grade:
    r"""Grade an answer as correct if it has the value of `truth`, both in LaTeX or plain text.

    The answer is found as by `extract`. Several boxes or tags are joined where the truth is a
    collection; for a single truth, each of them must have its value. A bare text with prose needs
    one marked expression, or one number. Boxes of the question do not count.
    The rule names how it was found and compared: "boxed, exact" (equal texts or equal numbers),
    "boxed, math-verify", or why it was not compared: "boxed, refused" (too long, towers,
    factorials, two values in one answer), "ambiguous". math-verify is needed only where the texts
    differ and are not both numbers. 1 m is 100 cm, but 1 cm is not 1 m, 3 boys are not 3 girls.
    Raises DataError if the truth is blank, ConfigError where math-verify is needed and missing,
    GraderError if it reached no verdict; the reply is neither right nor wrong then.

    >>> grade_maths(r"So $x = \boxed{\dfrac12}$.", r"\frac{1}{2}").rule
    'boxed, exact'
    >>> grade_maths("The answer is 0.5", "1/2").correct
    True
    >>> grade_maths(r"\boxed{9^{9^9}}", "1").rule
    'boxed, refused'
    """
    # Most answers of the environments of arithmetic: 5 times faster.
    if (number := _PLAIN_NUMBER.fullmatch(text)) and _INTEGER.fullmatch(truth):
        value = number[1] or text
        return Grade(value == truth, value, "boxed, exact" if number[1] else "bare, exact")
    right = _truth(truth)
    candidates, rule = found_answers(text, question)
    if rule not in ("boxed", "tag"):
        candidates, rule = _stated(text, candidates, rule)
    if not candidates:
        return Grade(False, None, rule)
    answers = list(dict.fromkeys(map(_unboxed, candidates)))
    grades = [compare_values(answer, right) for answer in answers]
    # 5 km and 5 m are both right for 5, but differ.
    one = all(compare_values(answer, answers[-1])[0] for answer in answers[:-1])
    if one and all(correct for correct, _ in grades):
        return Grade(True, answers[-1], f"{rule}, {grades[-1][1]}")
    if len(answers) == 1:
        return Grade(False, answers[0], f"{rule}, {grades[0][1]}")
    if not latex.is_collection(right):
        return Grade(False, None, "ambiguous")
    joined = ", ".join(answers)
    correct, how = compare_values(joined, right)
    return Grade(correct, joined, f"{rule}, {how}")


@lru_cache(maxsize=2**14)
def compare_values(answer: str, truth: str) -> tuple[bool, str]:
    """True if both have one value, and the name of the comparison.

    The name is "exact", "refused", or "math-verify". Raises ConfigError and GraderError as
    `grade_maths` does; an error is not remembered.
    """
    if _INTEGER.fullmatch(answer) and _INTEGER.fullmatch(truth):
        return answer == truth, "exact"
    answer, truth = in_latex(answer), in_latex(truth)
    # Most pairs end here or at the next step, without a round trip to another process.
    if latex.plain(answer) == latex.plain(truth):
        return True, "exact"
    said = _SAID.match(answer)
    if said and not units.words_of(truth) and not _DOUBT.search(said[0]):
        answer = answer[said.end() :]
    ratio = units.ratio(answer, truth)
    facts = zip(latex.facts_of(answer), latex.facts_of(truth), strict=True)
    differ = any(a and b and a != b for a, b in facts)
    if ratio is None or differ or not units.words_agree(answer, truth):
        return False, "exact"
    values = [
        unit.value if (unit := units.unit_of(t)) and unit.value else t for t in (answer, truth)
    ]
    number, expected = map(marked_number, values)
    if number is not None and expected is not None:
        return (number if ratio == 1 else Fraction(number) * ratio) == expected, "exact"
    # math-verify would take words for products of letters.
    if _WORDS.fullmatch(_TEXT.sub(r"\1", latex.without_dollars(truth)).strip()):
        texts = (latex.plain(text).casefold().removesuffix("s") for text in (answer, truth))
        return len(set(texts)) == 1, "exact"
    answer = _approximated(answer)
    if is_refused(answer, truth):
        return False, "refused"
    if ratio != 1:
        value, truth = values
        answer = rf"\frac{{{ratio.numerator}}}{{{ratio.denominator}}} \cdot ({value})"
    verdict = _POOL.ask(prepared(answer), prepared(truth))
    return verdict == "equal", "refused" if verdict == "refused" else "math-verify"


def is_refused(answer: str, truth: str) -> bool:
    """True for an answer that is too long or too deep to parse, or that may have several values.

    >>> is_refused("3 or 4", "3"), is_refused("3 or 4", "3, 4"), is_refused("x = 3", "3")
    (True, False, False)
    """
    # By the truth's length too: an answer in the form of a long truth must not be refused.
    if len(answer) > max(LONGEST, 2 * len(truth)) or latex.depth_of(answer) > DEEPEST:
        return True
    # An unbalanced brace would close the box that `math_server` puts around the answer.
    if answer.count("{") != answer.count("}") or _UNBOUNDED.search(answer):
        return True
    if latex.is_collection(truth) or "\\cup" in truth:
        return False
    if _HEDGES.search(answer) or _contradicts(answer):
        return True
    # math-verify takes items of a list without commas for a product, and 1 0 for 0.
    if _APART.search(answer) and not _APART.search(truth):
        return True
    # math-verify ignores words, which may change the number that they follow.
    return any(changes_number(words) and words not in truth for words in _TEXT.findall(answer))


def prepared(text: str) -> str:
    r"""The text for math-verify: without units of money and percent, and with plain numbers.

    >>> prepared("$1,200"), prepared("1.5e3"), prepared("1 1/2"), prepared("(1,2)")
    ('1200', '1.5\\times 10^{3}', '\\frac{3}{2}', '(1, 2)')
    """
    text = latex.ungrouped(latex.without_dollars(text))
    text = _PERCENT.sub("", _CURRENCY.sub("", text))
    if _TRIGONOMETRIC.search(text):
        text = _ANGLE.sub(r"{\\frac{\1\\pi}{180}}", text)
    text = _BUILDER.sub(lambda m: m[1].removesuffix("\\"), text)
    text = _MIXED.sub(_improper, _SCIENTIFIC.sub(r"\1\\times 10^{\2}", text))
    text = text.replace("≤", "\\le ").replace("≥", "\\ge ").replace("<=", "\\le ")
    return _COMMA.sub(", ", text.replace(">=", "\\ge ").replace("!=", "\\neq "))


def _stated(text: str, candidates: list[str], rule: str) -> tuple[list[str], str]:
    """The values that the found text states; those of the end of a text that is too long."""
    if candidates:
        return stated_values(candidates[0], is_marked=rule != "bare"), rule
    reply, _ = after_thought(text)
    if reply is None or len(reply) <= MOST:
        return [], rule
    values = final_values(reply[-MOST:])
    return values, "bare" if values else rule


def _approximated(answer: str) -> str:
    r"""The exact side of an answer such as \sqrt{2} \approx 1.41, or the number of x \approx 1.41.

    math-verify takes the left side alone; numbers that differ by over 1 % are two answers.
    """
    sides = _APPROXIMATE.split(latex.without_dollars(answer))
    left, *others = (side.strip() for side in sides)
    if len(others) != 1 or not left:
        return answer
    exact, rounded = marked_number(left), marked_number(others[0])
    if exact is not None and rounded is not None:
        return left if _is_near(exact, rounded) else f"{left} or {others[0]}"
    return others[0] if left.isalpha() else left


def _contradicts(answer: str) -> bool:
    """True for a chain such as 3 = 4 = 3, of which math-verify takes the last side."""
    sides = [marked_number(side) for side in latex.without_dollars(answer).split("=")]
    numbers = [number for number in sides if number is not None]
    return any(not _is_near(numbers[0], number) for number in numbers[1:])


def _is_near(exact: Number, rounded: Number) -> bool:
    """True for numbers that differ by 1 % at most, as a number and its rounded value do."""
    # A Decimal cannot be subtracted from a Fraction, and either one may be either.
    return abs(Fraction(exact) - Fraction(rounded)) <= abs(Fraction(exact)) / 100


def _improper(mixed: re.Match[str]) -> str:
    """The fraction of a mixed number, which the parser takes for a product before a symbol."""
    top, bottom = mixed[2] or mixed[4], mixed[3] or mixed[5]
    return f"\\frac{{{int(mixed[1]) * int(bottom) + int(top)}}}{{{bottom}}}"


@lru_cache(maxsize=2**14)
def _truth(truth: str) -> str:
    """The truth, or what its boxes contain. Raises DataError if it is blank."""
    boxes = boxed(truth)
    if not truth.strip():
        raise DataError(f"the truth must not be blank, got {truth!r}")
    return ", ".join(dict.fromkeys(boxes)) if boxes else latex.without_dollars(truth)


def _unboxed(answer: str) -> str:
    """The content of the box, if the answer is one, without bold type around all of it."""
    inside = boxed(answer)
    answer = inside[0] if len(inside) == 1 else answer
    if bold := _BOLD.match(answer):
        content = braced(answer[bold.end() :])
        # Not of the sum of two names in bold type.
        if content and bold.end() + len(content) + 2 == len(answer):
            return content
    return answer


def stated_values(text: str, *, is_marked: bool = False) -> list[str]:
    r"""The values that a text states: itself if it has no prose, else those of its conclusion.

    A text with prose states its only expression in $...$, its only number, or what follows the
    verb of its last sentence with "therefore", "so" or similar; if it is marked as the answer, what
    its first sentence says. [] if there is none, or if it contains words of doubt.

    >>> [*map(stated_values, ("x + 1", "The sum is $x + 1$.", "Thus she has 18 apples."))]
    [['x + 1'], ['x + 1'], ['18']]
    >>> stated_values("It is $3$ or $4$."), stated_values("Not 18, I think.")
    ([], [])
    """
    text = _MARKUP.sub("", text).strip()
    outside = _ENVIRONMENT.sub(" ", _SPAN.sub(" ", text))
    if not _WORD.search(outside) or marked_number(text) is not None:
        return [text.rstrip(" .")]
    if is_marked and len(sentences := _SENTENCE.split(text)) > 1:
        return stated_values(sentences[0], is_marked=True)
    if _DOUBT.search(outside):
        # It may still be a list of values, or a truth with such words.
        return [text] if len(_WORD.findall(outside)) <= 1 else []
    if is_marked and (values := _values_after_verb(text)):
        return values
    if len(spans := _spans(text)) == 1:
        return spans
    if not spans and len(numbers := _numbers(text)) == 1:
        return numbers
    return final_values(text) or [text]


def final_values(text: str) -> list[str]:
    """The values after the verb of the last sentence with "therefore", "so" or similar, or []."""
    for sentence in reversed(_SENTENCE.split(_MARKUP.sub("", text))):
        if _CONCLUSION.search(sentence):
            return [] if _DOUBT.search(_SPAN.sub(" ", sentence)) else _values_after_verb(sentence)
    return []


def _values_after_verb(sentence: str) -> list[str]:
    after = _VERB.split(_PUNCTUATION.sub("", sentence))[-1]
    return _spans(after) or _numbers(after)


def _spans(text: str) -> list[str]:
    return _distinct(["".join(match) for match in _SPAN.findall(text)])


def _numbers(text: str) -> list[str]:
    """The numbers of the text, unless words change one of them."""
    return [] if changes_number(text) else _distinct(_NUMBER.findall(text))


def _distinct(values: list[str]) -> list[str]:
    return list({latex.plain(value): value.strip() for value in values}.values())


class Pool:
    """Processes that compare pairs, one pair at a time each; a dead one is replaced.

    size: maximum number of processes. Safe in threads, which wait for a free process.
    cpu_s: CPU time for a comparison, in seconds. deadline_s: wall-clock time for it, and for the
        start of a process.
    """

    def __init__(
        self, size: int = 4, *, cpu_s: float = CPU_S, deadline_s: float = DEADLINE_S
    ) -> None:
        self._size, self._cpu_s, self._deadline_s = size, cpu_s, deadline_s
        self.forget()

    def forget(self) -> None:
        """Drop the processes in a fork: they belong to the parent."""
        self._places = threading.BoundedSemaphore(self._size)
        self._idle: list[subprocess.Popen[str]] = []

    def ask(self, answer: str, truth: str) -> str:
        """The verdict of `math_server.verdict_on`.

        answer, truth: LaTeX or plain text, without a box.
        Raises ConfigError if math-verify is not installed, GraderError if a process and then a
        fresh one have died or taken too long.
        """
        line, verdict = json.dumps([answer, truth]), ""
        with self._places:
            # Twice, because a killed or stopped process says nothing about the pair.
            for attempt in range(2):
                # A pop is safe in threads, a look at the length before it is not.
                process = None
                with suppress(IndexError):
                    process = self._idle.pop() if attempt == 0 else None
                process = process or self._started()
                verdict = self._verdict(process, line)
                if verdict in VERDICTS:
                    self._idle.append(process)
                    return verdict
        raise GraderError(
            f"math-verify reached no verdict on {answer!r} for {truth!r}, twice: {verdict} "
            f"(limits: {self._cpu_s} s of CPU time, {self._deadline_s} s)"
        )

    def _verdict(self, process: subprocess.Popen[str], line: str) -> str:
        """The reply of the process, or "timeout" or "crash"; it is killed unless it replies."""
        assert process.stdin, "it is a pipe"
        assert process.stdout, "it is a pipe"
        reply = ""
        try:
            process.stdin.write(f"{line}\n")
            # A blocked `readline` cannot be interrupted from this thread; a wait for the pipe has a
            # deadline.
            if select.select([process.stdout], [], [], self._deadline_s)[0]:
                reply = process.stdout.readline().strip() or "crash"
            else:
                reply = "timeout"
        except OSError:
            reply = "crash"
        finally:
            # Also if the wait is interrupted.
            if reply not in VERDICTS:
                _end(process)
        return reply

    def _started(self) -> subprocess.Popen[str]:
        """A new process, which has compared a first pair. Raises ConfigError if it cannot."""
        require_math_verify()
        # Not by multiprocessing, whose daemonic workers (vector environments) may have no children.
        process = subprocess.Popen(
            [sys.executable, "-m", "ludic_gym.graders.math_server", str(self._cpu_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
        )
        if self._verdict(process, '["1", "1"]') != "equal":
            raise ConfigError("math-verify does not start; try: python -c 'import math_verify'")
        return process

    def close(self) -> None:
        """End the idle processes; the next comparison starts another."""
        with suppress(IndexError):
            while True:
                _end(self._idle.pop())


def require_math_verify() -> None:
    """Raise ConfigError if math-verify is not installed, or cannot be used here."""
    if not IS_POSIX:
        raise ConfigError(
            f"math-verify is run in a process that needs Linux or macOS, this is {os.name!r}: "
            "use WSL, or grade_number where each truth is a number"
        )
    if importlib.util.find_spec("math_verify") is None:
        raise ConfigError("grade_maths needs math-verify: pip install 'ludic-gym[math]'")


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    # Wait for the end and close the pipes.
    process.communicate()


# Shared by all graders.
_POOL = Pool(min(4, os.cpu_count() or 1))
atexit.register(_POOL.close)
if IS_POSIX:
    os.register_at_fork(after_in_child=_POOL.forget)
