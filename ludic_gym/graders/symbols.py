r"""Symbols of mathematics that replies have in place of LaTeX, such as √3, 120° or \frac\pi6."""

import re
import unicodedata

_DIGITS_ABOVE, _DIGITS_BELOW = "⁰¹²³⁴⁵⁶⁷⁸⁹", "₀₁₂₃₄₅₆₇₈₉"
_ABOVE = str.maketrans(_DIGITS_ABOVE + "⁺⁻ⁿ", "0123456789+-n")
_BELOW = str.maketrans(_DIGITS_BELOW + "₊₋", "0123456789+-")
_FRACTIONS = {
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
        "–": "-",
        "⁄": "/",
        "\u00a0": " ",
        **_FRACTIONS,
    }
)
_RAISED = re.compile("[⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹ⁿ]+")
_LOWERED = re.compile("[₊₋]?[₀₁₂₃₄₅₆₇₈₉]+")
_ROOT = re.compile(r"√\s?(?:\{([^{}]*)\}|\(([^()]*)\)|(\d+(?:\.\d+)?|[A-Za-zπ]|\\pi(?![a-z])))")
_DEGREE = re.compile(r"\\degree(?![a-z])")
_NOTHING = re.compile(r"\\varnothing(?![a-z])")
_NAME = re.compile(r"(?<![A-Za-z\\])(pi(?![A-Za-z])|sqrt(?=\s?\{))")
# Not the asterisks of Markdown, which stand at the ends.
_POWER = re.compile(r"(?<=[\w)}])\*\*(?=[\w({-])")
_ARGUMENT = r"\s?(\\pi(?![a-z])|[A-Za-z\d])"
_SHORT_FRACTION = re.compile(rf"\\([dtc]?frac){_ARGUMENT}{_ARGUMENT}")


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
    text = _POWER.sub("^", text) if "**" in text else text
    text = _NAME.sub(r"\\\1 ", text) if "pi" in text or "sqrt" in text else text
    if "\\" not in text:
        return text
    text = _NOTHING.sub(r"\\emptyset", _DEGREE.sub(r"^\\circ", text))
    return _SHORT_FRACTION.sub(r"\\\1{\2}{\3}", text)


def _group(text: str) -> str:
    return text if len(text) == 1 else f"{{{text}}}"
