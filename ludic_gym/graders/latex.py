"""Answers in LaTeX, in plain text or with symbols such as √3: layout and collections."""

import re
import unicodedata

_DIGITS_ABOVE, _DIGITS_BELOW = "⁰¹²³⁴⁵⁶⁷⁸⁹", "₀₁₂₃₄₅₆₇₈₉"
_ABOVE = str.maketrans(_DIGITS_ABOVE + "⁺⁻ⁿ", "0123456789+-n")
_BELOW = str.maketrans(_DIGITS_BELOW + "₊₋", "0123456789+-")
_FRACTION_SIGNS = {
    character: "\\frac{{{}}}{{{}}}".format(*unicodedata.normalize("NFKC", character).split("⁄"))
    for character in "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅐⅛⅜⅝⅞⅑⅒"
}
# The blank ends a command before a letter.
_CHARACTERS = str.maketrans(
    {
        "°": "^\\circ ",
        "∞": "\\infty ",
        "·": "\\cdot ",
        "∈": "\\in ",
        "±": "\\pm ",
        "–": "-",
        "⁄": "/",
        "\u00a0": " ",
        **_FRACTION_SIGNS,
    }
)
_RAISED = re.compile("[⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹ⁿ]+")
_LOWERED = re.compile("[₊₋]?[₀₁₂₃₄₅₆₇₈₉]+")
_ROOT = re.compile(r"√\s?(?:\{([^{}]*)\}|\(([^()]*)\)|(\d+(?:\.\d+)?|[A-Za-zπ]|\\pi(?![a-z])))")
_DEGREE = re.compile(r"\\degree(?![a-z])")
_NOTHING = re.compile(r"\\varnothing(?![a-z])")
# Not inside a command, or the argument of one.
_NAME = re.compile(
    r"(?<![A-Za-z\\])(?<!name\{)(?<!text\{)(?<!mathrm\{)"
    r"(pi(?![A-Za-z])|sqrt(?=\s?\{)|(?:(?:arc)?(?:sin|cos|tan)|log|ln|exp)(?![A-Za-z]))"
)
_NUMERALS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
    "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
    "twenty",
)  # fmt: skip
# The words of 12 (twelve) or twelve (12), beside their own number.
_WORDS_OF = (
    rf"(?<=\b{n})\s*(?:\\text\s?{{\s*)?\({w}\)}}?|(?:\\text\s?{{\s*)?\b{w}\s?}}?\s*(?=\({n}\))"
    for n, w in enumerate(_NUMERALS)
)
SPELLED = re.compile("|".join(_WORDS_OF), re.IGNORECASE)
_LONG_BASE = re.compile(r"\\log\s?_(\d{2,})")
_LONG_ROOT = re.compile(r"(\\sqrt\s?\[\d+\])\s?(\d+|[A-Za-z])")
_EULER = re.compile(r"\\(?:mathrm|text)\s?\{\s?([ei])\s?\}")
_SINGLE = re.compile(r"([_^])\{(?:\\text\{)?(\w)\}?\}")
_REPEATING = re.compile(r"(\d{0,9})\.(\d{0,9})\\(?:overline|bar|dot)(?:\s?\{(\d{1,9})\}|\s?(\d))")
# Not the asterisks of Markdown, which stand at the ends.
_POWER = re.compile(r"(?<=[\w)}])\*\*(?=[\w({-])")
_ARGUMENT = r"\s?(\\pi(?![a-z])|[A-Za-z\d])"
_SHORT_FRACTION = re.compile(rf"\\([dtc]?frac|[dt]?binom){_ARGUMENT}{_ARGUMENT}")
SPACES = re.compile(r"(?:\\[,;:! ]|\\q?quad(?![a-z])|~|\s)+")
_SIZES = re.compile(r"\\(?:left|right|bigg?|Bigg?)(?![a-z])|\\displaystyle(?![a-z])")
# Spaces and commas that group the digits of a number by three: "32,\! 349", "1\,000".
_THIN = r"\\[,;:!]\s?"
_COMMA = r"(?:,|\s?\{,\s?\})"
_GROUPED = re.compile(
    rf"(?<![\d.])(?<!\d,)[1-9]\d{{0,2}}"
    rf"(?:(?:{_COMMA}?{_THIN}|{_COMMA}|\\?[ ~\u2009\u202f])\d{{3}})+(?!\d)"
)
_NO_DIGITS = re.compile(r"\D+")
# A power inside a text, such as \text{m$^2$}.
_POWER_IN_TEXT = re.compile(r"\$\s?\^\s?\{?([23])\}?\s?\$")
# Not the dollar of a sum of money.
_DOLLARS = re.compile(r"^\$+(?!\s?[\d.,]+(?:\s[A-Za-z ]+)?$)|(?<=[^\\])\$+$|^\\[(\[]|\\[)\]]$")
TEXT = re.compile(r"\\(?:text|textbf|textrm|textit|mathrm|mathbf|mbox)\s?\{([^{}]*)\}")
_FRACTIONS = re.compile(r"\\[dtc]frac")
_BARE_FRACTION = re.compile(r"\\frac\s?(\d)\s?(\d)")
DEGREES = re.compile(r"\^\{?\\circ\}?")
_END = re.compile(r"[.\s]+$")
_BASE = re.compile(r"\d_\{?(\d+)\}?$")
_NAMED = re.compile(r"([A-Za-z])\s?=(?:[^=<>A-Za-z\\]|\\(?:[dtc]?frac|sqrt|pi)(?![a-z]))+")
_LOOSE = re.compile(r"(?<!\d) +| +(?!\d)| (?= )")
_OPENING, _CLOSING = "([{", ")]}"
_SET = re.compile(r"\\?\{(.*?)\\?\}", re.DOTALL)
_LISTED = re.compile(r"\\text\s?\{\s*(?:,\s*)?(?:and|or)\s*\}|\b(?:and|or)\b|;|\\pm(?![a-z])")


def in_latex(text: str) -> str:
    r"""The text in LaTeX that every parser knows, with its other characters unchanged.

    >>> in_latex("2√3"), in_latex("x² + ½"), in_latex(r"\frac\pi6")
    ('2\\sqrt{3}', 'x^2 + \\frac{1}{2}', '\\frac{\\pi}{6}')
    """
    if not text.isascii():
        text = _ROOT.sub(lambda m: f"\\sqrt{{{m[1] or m[2] or m[3]}}}", text)
        text = _RAISED.sub(lambda m: f"^{_group(m[0].translate(_ABOVE))}", text)
        text = _LOWERED.sub(lambda m: f"_{_group(m[0].translate(_BELOW))}", text)
        text = text.translate(_CHARACTERS)
    text = SPELLED.sub("", text) if "(" in text else text
    text = _POWER.sub("^", text) if "**" in text else text
    text = _NAME.sub(r"\\\1 ", text)
    if "\\" not in text:
        return text
    text = _POWER_IN_TEXT.sub(r"^\1", text) if "$^" in text else text
    text = _NOTHING.sub(r"\\emptyset", _DEGREE.sub(r"^\\circ", repeated(_EULER.sub(r"\1", text))))
    text = _LONG_BASE.sub(r"\\log_{\1}", _LONG_ROOT.sub(r"\1{\2}", text))
    return _SHORT_FRACTION.sub(r"\\\1{\2}{\3}", text)


def repeated(text: str) -> str:
    r"""The text with repeating decimals as fractions.

    >>> repeated(r"0.1\overline{6}"), repeated(r"0.\dot3")  # 15/90 is 1/6
    ('\\frac{15}{90}', '\\frac{3}{9}')
    """

    def fraction(match: re.Match[str]) -> str:
        fixed, period = f"{match[1]}{match[2]}", match[3] or match[4]
        top = int(fixed + period) - int(fixed or 0)
        return f"\\frac{{{top}}}{{{'9' * len(period)}{'0' * len(match[2])}}}"

    return _REPEATING.sub(fraction, text)


def _group(text: str) -> str:
    return text if len(text) == 1 else f"{{{text}}}"


def plain(text: str) -> str:
    r"""The text without layout: dollars, spaces, text commands, degrees.

    A space between digits stays, because 1 1/2 is not 11/2.

    >>> plain(r"$\dfrac12 \text{ cm}$"), plain("32,\\! 349"), plain("1  1/2")
    ('\\frac{1}{2}cm', '32349', '1 1/2')
    """
    text = DEGREES.sub("", TEXT.sub(r"\1", without_dollars(text)))
    text = _SINGLE.sub(r"\1\2", _FRACTIONS.sub(r"\\frac", text))
    text = _BARE_FRACTION.sub(r"\\frac{\1}{\2}", text)
    text = SPACES.sub(" ", ungrouped(_SIZES.sub("", text))).strip()
    return _LOOSE.sub("", text) if " " in text else text


def without_dollars(text: str) -> str:
    r"""The text without the marks of mathematics around it, and a full stop at its end.

    >>> without_dollars(r"\(x + 1\)."), without_dollars("$$ 5 $$")
    ('x + 1', '5')
    """
    return _END.sub("", _DOLLARS.sub("", _END.sub("", text.strip()))).strip()


def ungrouped(text: str) -> str:
    r"""The text with its numbers without separators between groups of three digits.

    A comma in brackets separates values: (1,000) is a point, or an interval.

    >>> ungrouped("1,000"), ungrouped(r"12\,345"), ungrouped("1, 200"), ungrouped("(1,200)")
    ('1000', '12345', '1, 200', '(1,200)')
    """

    def joined(match: re.Match[str]) -> str:
        is_list = "," in match[0] and "{" not in match[0] and "\\" not in match[0]
        before = text[: match.start()]
        # A bracket or a brace of a set is open.
        is_inside = any(before.count(a) > before.count(b) for a, b in ("()", "[]", ("\\{", "\\}")))
        return match[0] if is_list and is_inside else _NO_DIGITS.sub("", match[0])

    return _GROUPED.sub(joined, text)


def facts_of(text: str) -> tuple[str, str]:
    """The base of a number such as 1010_2, and the letter that x = 3 names, or ""."""
    text = without_dollars(text)
    base, name = _BASE.search(text), _NAMED.fullmatch(text)
    return base[1] if base else "", name[1] if name else ""


def is_collection(text: str) -> bool:
    r"""True for several values: a list, or a set; not for a point, an interval or a number.

    >>> [is_collection(text) for text in ("1, 2", r"\{1, 2\}", "x = 1 or x = 2", "(1, 2)", "1,000")]
    [True, True, True, False, False]
    """
    text = _SIZES.sub("", without_dollars(text))
    inside = _SET.fullmatch(text)
    text = ungrouped(inside[1] if inside else text)
    return len(parts_of(text)) > 1 or _LISTED.search(text) is not None


def parts_of(text: str) -> list[str]:
    """The text, split at the commas that are in no bracket.

    >>> parts_of("(1, 2), 3")
    ['(1, 2)', '3']
    """
    parts, depth = [""], 0
    for character in text:
        depth += (character in _OPENING) - (character in _CLOSING)
        if character == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def depth_of(text: str) -> int:
    """The largest number of open brackets and bars at any place of the text."""
    depth = deepest = 0
    for character in text:
        depth += (character in _OPENING) - (character in _CLOSING)
        deepest = max(deepest, depth)
    return deepest + text.count("|") // 4
