"""Units and other words beside a value: what they measure, and whether two texts agree on them."""

import re
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from ludic_gym.graders.latex import DEGREES, SPACES, TEXT, without_dollars

# By their product: each size in it, and its spellings. The plural of a spelling, and "metre" for
# "meter", are added. One letter, and names with capitals, count in their case only.
_SIZES = {
    "m": "1e-9 nm nanometer, 0.001 mm millimeter, 0.01 cm cms centimeter, 1 m meter, "
    "1000 km kms kilometer, 0.0254 in inch inche, 0.3048 ft foot feet, 0.9144 yd yds yard, "
    "1609.344 mi mile, 1852 nmi",
    "m m": "10000 ha hectare, 4046.8564224 acre",
    "m m m": "1e-6 ml milliliter, 0.00001 cl centiliter, 0.001 l L liter, "
    "0.003785411784 gal gallon, 0.000946352946 qt quart, 0.000473176473 pt pint, "
    "0.0002365882365 cup",
    "g": "0.001 mg milligram, 1 g gram, 1000 kg kgs kilo kilogram, 1e6 tonne, "
    "28.349523125 oz ounce, 453.59237 lb lbs pound",
    "s": "0.001 ms millisecond, 1 s sec second, 60 min minute, 3600 h hr hrs hour, 86400 day, "
    "604800 week, 1209600 fortnight",
    "/s": "1 Hz hertz, 1000 kHz kilohertz, 1e6 MHz megahertz, 1e9 GHz gigahertz",
    "m /s": "0.44704 mph, 5/18 kph kmph kmh, 463/900 knot",
    "month": "1 month, 12 yr yrs year, 120 decade, 1200 century centuries",
    "$": "0.01 ¢ cent, 1 $ us$ usd dollar",
    "£": "0.01 penny pence, 1 £ gbp",
    "J": "1 J joule, 1000 kj kilojoule, 4.184 cal calorie, 4184 kcal kilocalorie, 3.6e6 kwh",
    "W": "0.001 mW milliwatt, 1 W watt, 1000 kw kilowatt, 1e6 MW megawatt",
    "N": "1 N newton, 1000 kN kilonewton",
    "Pa": "1 pa pascal, 1000 kPa kilopascal, 1e6 MPa megapascal, 1e5 bar, 101325 atm atmosphere",
    "V": "0.001 mV millivolt, 1 V volt, 1000 kV kilovolt",
    "A": "0.001 mA milliamp milliampere, 1 A amp ampere",
    "mol": "0.001 mmol millimole, 1 mol mole",
}
# Units that no other one is compared with.
_ALONE = (
    "€ eur euro, ¥ jpy yen, ₹ inr rupee, % percent pct percentage, rad radian, ton, K kelvin, ohm, "
    "kb kilobyte, mb megabyte, gb gigabyte, tb terabyte, "
    "° deg degree, °c celsius, °f fahrenheit, °n, °s, °e, °w"
)


def _spellings() -> dict[str, tuple[str, Fraction]]:
    table = {
        name: (base, Fraction(size))
        for base, units in _SIZES.items()
        for size, *names in map(str.split, units.split(", "))
        for name in names
    }
    for names in map(str.split, _ALONE.split(", ")):
        table |= dict.fromkeys(names, (names[0], Fraction(1)))
    british = {f"{n[:-2]}re": n for n in table if n.endswith(("meter", "liter"))}
    table |= {name: table[american] for name, american in british.items()}
    return table | {f"{name}s": unit for name, unit in table.items() if len(name) > 2}


UNIT_OF = _spellings()
_IN_LOWER_CASE = frozenset(map(str.lower, UNIT_OF))
_GAP = r"[\s\x00]*"
# After a number, a bracket, or where a text of LaTeX begins.
_START = re.compile(r"(?:(?<=[\d)}\]])|(?<=\d\.)|(?<=\\pi))(?![\d.,\\])|\x00")
# "5 in all" names no inches.
_PART = re.compile(
    rf"{_GAP}(?:(?P<per>/|\bper\b)|\*)?{_GAP}(?:(?P<before>(?i:square|cubic|sq|cu))\.?\s)?"
    r"(?!in\b(?!\s*(?:\^|/|\.?$|squared|cubed)))(?P<name>[A-Za-z]+\$?|°[CFNSEW]?|[%$€£¥₹¢])\.?"
    r"(?:\s*\^\s?\{?(?P<raised>-?[1-3])\}?|\s(?P<after>squared|cubed)\b)?"
)
_REST = re.compile(r"[^\d\\=<>^]*")
_POWERS = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cu": 3, "cubed": 3}
_BEFORE = re.compile(r"(?:[A-Za-z]\s?=\s?)?(?:US)?\\?([$€£¥₹]|(?:USD|EUR|GBP|JPY|INR)(?![A-Za-z]))")
_TEMPERATURE = re.compile(
    rf"(?:°|\bdegrees?){_GAP}([CFNSEW])(?:elsius|ahrenheit|orth|outh|ast|est)?(?![A-Za-z])"
)
_FRACTION = re.compile(rf"\\[dt]?frac\s?\{{({TEXT.pattern})\}}\s?\{{({TEXT.pattern})\}}")
# The end of "$28$ percent", not a sum of money.
_CLOSED = re.compile(r"(?<=[^\s\\])\$(?=\s)")
_TIME = re.compile(r"(?<![A-Za-z])([AaPp])\.?\s?[Mm](?![A-Za-z])")
# Words beside a value: in LaTeX's texts, and after a number.
_TAIL = re.compile(r"(?<=[\d)}°%])\s+([A-Za-z][A-Za-z ,()'-]*)\.?$")
_WORD = re.compile(r"[a-z]{3,}|[ap]m|up|bc|ad|ce")
_CONNECTING = frozenset(
    ["and", "the", "are", "for", "all", "with", "per", "square", "cubic", "squared", "cubed",
     "unit", "value", "exactly", "about", "total", "answer", "where", "that", "there"]
)  # fmt: skip
# A word after a number that begins no name of what it counts.
_NO_NAME = frozenset(["is", "are", "in", "of", "for", "left", "which", "as", "on", "altogether"])


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
    before, (parts, start) = _BEFORE.match(text), _parts_after_value(text)
    if not before and not parts:
        return None
    size, powers = Fraction(1), Counter[str]()
    for name, power in ([(before[1].lower(), 1)] if before else []) + parts:
        product, scale = UNIT_OF[name]
        size *= scale**power
        for base in product.split():
            powers[base.strip("/")] += -power if base[0] == "/" else power
    return Unit(text[before.end() if before else 0 : start], size, frozenset(powers.items()))


def _parts_after_value(text: str) -> tuple[list[tuple[str, int]], int]:
    """The names and powers of the first unit that only words follow, and its place; [] if none."""
    for start in _START.finditer(text):
        parts, end = list[tuple[str, int]](), start.end()
        while part := _PART.match(text, end):
            name = part["name"]
            name = name if name in UNIT_OF or len(name) == 1 else name.lower()
            if name not in UNIT_OF:
                break
            word = (part["before"] or part["after"] or "").lower()
            power = int(part["raised"] or _POWERS.get(word, 1))
            parts.append((name, -power if part["per"] else power))
            end = part.end()
        if parts and _REST.fullmatch(text, end):
            return parts, start.start()
    return [], len(text)


def ratio(answer: str, truth: str) -> Fraction | None:
    """The unit of the answer in that of the truth; 1 if one has none, None if they differ in kind.

    >>> ratio("36 km/h", "10 m/s"), ratio("18", "18 cm"), ratio("18 m", "18 kg")
    (Fraction(5, 18), Fraction(1, 1), None)
    >>> ratio("18 apples", "18 cm"), ratio("18 apples", "18")
    (None, Fraction(1, 1))
    """
    left, right = unit_of(answer), unit_of(truth)
    if left is None or right is None:
        is_other = (right and _counts(answer)) or (left and _counts(truth))
        return None if is_other else Fraction(1)
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
    text = _TIME.sub(r" \1m", without_dollars(text))
    return _named(" ".join([*TEXT.findall(text), _tail(text)]))


def _counts(text: str) -> bool:
    """True if words after the value name what it counts, such as 18 apples."""
    tail = _tail(text)
    return bool(_named(tail)) and tail.split()[0].lower() not in _NO_NAME


def _tail(text: str) -> str:
    """The words after the value, or ""."""
    tail = _TAIL.search(TEXT.sub(r" \1 ", without_dollars(text)).rstrip())
    return tail[1] if tail else ""


def _named(words: str) -> frozenset[str]:
    found = _WORD.findall(words.lower())
    return frozenset(w.removesuffix("s") for w in found if w not in _IN_LOWER_CASE) - _CONNECTING


def _bare(text: str) -> str:
    """The text without LaTeX around its units; a zero byte is where a text of LaTeX began."""
    text = _CLOSED.sub("", without_dollars(text.replace("\x00", "")))
    text = TEXT.sub("\x00\\1 ", _FRACTION.sub(r"\1/\3", text))
    text = SPACES.sub(" ", DEGREES.sub("°", text)).replace("\\%", "%").replace("\\cdot", "*")
    return _TEMPERATURE.sub(r"°\1", text.replace("·", "*")).strip()
