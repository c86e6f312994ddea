"""Units and other words beside a value: what they measure, and whether two texts agree on them."""

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from ludic_gym.graders.latex import DEGREES, SPACES, TEXT, without_dollars

# Base, size in the base, spellings; the plural of a spelling, and "metre" for "meter", are added.
# One letter counts in its case only.
_UNITS = (
    ("m", "1e-9", "nm nanometer"),
    ("m", "0.001", "mm millimeter"),
    ("m", "0.01", "cm cms centimeter"),
    ("m", "1", "m meter"),
    ("m", "1000", "km kms kilometer"),
    ("m", "0.0254", "in inch inche"),
    ("m", "0.3048", "ft foot feet"),
    ("m", "0.9144", "yd yds yard"),
    ("m", "1609.344", "mi mile"),
    ("g", "0.001", "mg milligram"),
    ("g", "1", "g gram"),
    ("g", "1000", "kg kgs kilo kilogram"),
    ("g", "1e6", "tonne"),
    ("g", "28.349523125", "oz ounce"),
    ("g", "453.59237", "lb lbs pound"),
    ("ton", "1", "ton"),
    ("m^3", "1e-6", "ml milliliter"),
    ("m^3", "0.001", "l L liter"),
    ("m^3", "0.003785411784", "gal gallon"),
    ("s", "0.001", "ms millisecond"),
    ("s", "1", "s sec second"),
    ("s", "60", "min minute"),
    ("s", "3600", "h hr hrs hour"),
    ("s", "86400", "day"),
    ("s", "604800", "week"),
    ("month", "1", "month"),
    ("month", "12", "yr yrs year"),
    ("$", "0.01", "¢ cent"),
    ("$", "1", "$ us$ usd dollar"),
    ("€", "1", "€ eur euro"),
    ("£", "1", "£ gbp"),
    ("¥", "1", "¥ jpy yen"),
    ("₹", "1", "₹ inr rupee"),
    ("%", "1", "% percent"),
    ("°", "1", "° deg degree"),
    ("°C", "1", "°c celsius"),
    ("°F", "1", "°f fahrenheit"),
    ("°N", "1", "°n"),
    ("°S", "1", "°s"),
    ("°E", "1", "°e"),
    ("°W", "1", "°w"),
    ("K", "1", "K kelvin"),
    ("rad", "1", "rad radian"),
    ("N", "1", "N newton"),
    ("J", "1", "J joule"),
    ("J", "1000", "kj kilojoule"),
    ("W", "1", "W watt"),
    ("W", "1000", "kw kilowatt"),
    ("V", "1", "V volt"),
    ("A", "1", "A amp ampere"),
    ("Hz", "1", "hz hertz"),
    ("Pa", "1", "pascal"),
    ("KB", "1", "kb kilobyte"),
    ("MB", "1", "mb megabyte"),
    ("GB", "1", "gb gigabyte"),
)
_SPEEDS = {"mph": "mi/h", "kph": "km/h", "kmph": "km/h", "kmh": "km/h"}


def _spellings() -> dict[str, tuple[str, Fraction]]:
    table = {name: (base, Fraction(size)) for base, size, names in _UNITS for name in names.split()}
    british = {f"{n[:-2]}re": n for n in table if n.endswith(("meter", "liter"))}
    table |= {name: table[american] for name, american in british.items()}
    return table | {f"{name}s": unit for name, unit in table.items() if len(name) > 2}


UNIT_OF = _spellings()
_LONG = "|".join(re.escape(n) for n in sorted(UNIT_OF, key=len, reverse=True) if len(n) > 1)
_SHORT = "".join(n for n in UNIT_OF if len(n) == 1)
_GAP = r"[\s\x00]*"
# "5 in all" names no inches.
_PART = (
    r"(?:(?i:square|cubic|sq\.?|cu\.?) )?"
    rf"(?:(?!in\b(?!\s*(?:\^|/|\.?$|squared|cubed)))(?i:{_LONG})|[{_SHORT}])(?![A-Za-z])\.?"
    r"(?:\s*\^\s?\{?-?[1-3]\}?|\s(?:squared|cubed)\b)?"
)
_PER = rf"(?:/|\bper\b){_GAP}"
_UNIT = re.compile(
    rf"(?:(?<=[\d).}}\]])|(?<=\\pi)|\x00){_GAP}"
    rf"(?P<unit>(?:{_PER})?{_PART}(?:{_GAP}(?:{_PER}|\*)?{_PART}){{0,3}})(?![\w^])[^\d\\=<>^]*$"
)
_TOKEN = re.compile(
    rf"(?P<per>/|\bper\b)?{_GAP}(?:(?P<before>square|cubic|sq|cu)\.? )?"
    rf"(?P<name>(?i:{_LONG})|[{_SHORT}])(?![A-Za-z])\.?"
    r"(?:\s*\^\s?\{?(?P<raised>-?[1-3])\}?|\s(?P<after>squared|cubed)\b)?",
)
_POWERS = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cu": 3, "cubed": 3}
_BEFORE = re.compile(r"(?:[A-Za-z]\s?=\s?)?(?:US)?\\?([$€£¥₹]|(?:USD|EUR|GBP|JPY|INR)(?![A-Za-z]))")
_TEMPERATURE = re.compile(
    rf"(?:°|\bdegrees?){_GAP}([CFNSEW])(?:elsius|ahrenheit|orth|outh|ast|est)?(?![A-Za-z])"
)
_SPEED = re.compile(rf"\b(?:{'|'.join(_SPEEDS)})\b")
_FRACTION = re.compile(rf"\\[dt]?frac\s?\{{({TEXT.pattern})\}}\s?\{{({TEXT.pattern})\}}")
# The end of "$28$ percent", not a sum of money.
_CLOSED = re.compile(r"(?<=[^\s\\])\$(?=\s)")
_TIME = re.compile(r"\b([AaPp])\.?\s?[Mm](?![A-Za-z])")
# Words beside a value: in LaTeX's texts, and after a number.
_TAIL = re.compile(r"(?<=[\d)}°])\s+([A-Za-z][A-Za-z ,()'-]*)$")
_WORD = re.compile(r"[A-Za-z]{3,}|[ap]m|up")
_CONNECTING = frozenset(
    ["and", "the", "are", "for", "all", "with", "per", "square", "cubic", "squared", "cubed",
     "unit", "value", "exactly", "about", "total", "answer", "where", "that", "there"]
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit after a value.

    value: the text before it. size: of the unit, in those of `powers`, each a base and its power.
    """

    value: str
    size: Fraction
    powers: frozenset[tuple[str, int]]


@lru_cache(maxsize=2**14)
def unit_of(text: str) -> Unit | None:
    r"""The unit of the value that the text is, or None without one that is known.

    >>> unit_of(r"\frac12\text{ km/h}").size, unit_of("18 apples")
    (Fraction(5, 18), None)
    """
    text = _bare(text)
    before, after = _BEFORE.match(text), _UNIT.search(text)
    if before is None and after is None:
        return None
    unit = f"{before[1] if before else ''} {after['unit'] if after else ''}"
    size, powers = Fraction(1), dict[str, int]()
    for part in _TOKEN.finditer(unit):
        name = part["name"]
        base, scale = UNIT_OF[name if len(name) == 1 else name.lower()]
        word = part["before"] or part["after"]
        power = int(part["raised"] or (_POWERS[word.lower()] if word else 1))
        power *= -1 if part["per"] else 1
        base, _, inner = base.partition("^")
        size *= scale**power
        powers[base] = powers.get(base, 0) + power * int(inner or 1)
    value = text[before.end() if before else 0 : after.start() if after else len(text)]
    return Unit(value, size, frozenset(powers.items()))


def ratio(answer: str, truth: str) -> Fraction | None:
    """The unit of the answer in that of the truth; 1 if one has none, None if they differ in kind.

    >>> ratio("36 km/h", "10 m/s"), ratio("18", "18 cm"), ratio("18 m", "18 kg")
    (Fraction(5, 18), Fraction(1, 1), None)
    """
    right = unit_of(truth)
    left = unit_of(answer) if right else None
    if left is None or right is None:
        return Fraction(1)
    if left.powers == right.powers:
        return left.size / right.size
    # Degrees may be those of a scale, or of a direction, that only one text names.
    kinds = {base for base, _ in left.powers ^ right.powers}
    is_angle = "°" in kinds and all(base.startswith("°") for base in kinds)
    return Fraction(1) if is_angle else None


def words_agree(answer: str, truth: str) -> bool:
    r"""True unless each text has a word, that is no unit, which the other lacks.

    >>> words_agree("12 boys", "12 girls"), words_agree("12 red apples", "12 apples")
    (False, True)
    """
    right = words_of(truth)
    left = words_of(answer) if right else right
    return left <= right or left >= right or not left


@lru_cache(maxsize=2**14)
def words_of(text: str) -> frozenset[str]:
    """The words beside a value, without units, connecting words, and the s of a plural."""
    text = _TIME.sub(r"\1m", text)
    tail = _TAIL.search(TEXT.sub(r" \1 ", text))
    words = _WORD.findall(" ".join([*TEXT.findall(text), tail[1] if tail else ""]).lower())
    return frozenset(w.removesuffix("s") for w in words if w not in UNIT_OF) - _CONNECTING


def _bare(text: str) -> str:
    """The text without LaTeX around its units; a zero byte is where a text of LaTeX began."""
    text = _CLOSED.sub("", without_dollars(text))
    text = TEXT.sub("\x00\\1 ", _FRACTION.sub(r"\1/\3", text))
    text = _SPEED.sub(lambda m: _SPEEDS[m[0]], text)
    text = SPACES.sub(" ", DEGREES.sub("°", text)).replace("\\%", "%").replace("\\cdot", "*")
    return _TEMPERATURE.sub(r"°\1", text.replace("·", "*")).strip()
