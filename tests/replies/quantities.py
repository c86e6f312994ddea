r"""Replies with quantities, labelled by a table of units of its own, and words beside a value.

A quantity is a number of a unit; two are equal if their dimensions are, and their sizes in the base
unit of each are, as fractions. A number alone is the same as that number of any unit.
"""

from collections.abc import Iterator
from fractions import Fraction
from random import Random

from replies.layouts import BOTH, LAYOUTS, Row, laid_out

# Dimension -> unit -> size, and its spellings: {} is the number. Definitions of the SI brochure,
# and of the international yard and pound (1959).
UNITS: dict[str, dict[str, tuple[str, ...]]] = {
    "length": {
        "1": (r"{}\text{{ m}}", "{} m", "{} meters", "{} metres", r"{}\,\mathrm{{m}}"),
        "1000": (r"{}\text{{ km}}", "{} km", "{} kilometers", "{} kilometres", r"{}~\text{{km}}"),
        "1/100": (r"{}\text{{ cm}}", "{} cm", "{} centimeters", "{}cm"),
        "1/1000": (r"{}\text{{ mm}}", "{} mm", "{} millimeters"),
        "254/10000": (r"{}\text{{ inches}}", "{} inches", "{} in."),
        "3048/10000": (r"{}\text{{ feet}}", "{} ft", "{} feet"),
        "9144/10000": (r"{}\text{{ yards}}", "{} yd", "{} yards"),
        "1609344/1000": (r"{}\text{{ miles}}", "{} mi", "{} miles"),
    },
    "area": {
        "1": (r"{}\text{{ m}}^2", "{} m^2", "{} square meters", "{} m²", r"{}\text{{ m$^2$}}"),
        "1/10000": (r"{}\text{{ cm}}^2", "{} cm²", "{} square centimeters", r"{}\text{{ sq cm}}"),
        "1000000": (r"{}\text{{ km}}^2", "{} km²", "{} square kilometers"),
        "10000": ("{} hectares", "{} ha"),
    },
    "volume": {
        "1": (r"{}\text{{ m}}^3", "{} m³", "{} cubic meters"),
        "1/1000": (r"{}\text{{ L}}", "{} liters", "{} litres", "{} L"),
        "1/1000000": (r"{}\text{{ mL}}", "{} mL", "{} cm³", r"{}\text{{ cubic centimeters}}"),
    },
    "mass": {
        "1": (r"{}\text{{ kg}}", "{} kg", "{} kilograms"),
        "1/1000": (r"{}\text{{ g}}", "{} g", "{} grams"),
        "1/1000000": (r"{}\text{{ mg}}", "{} mg", "{} milligrams"),
        "1000": ("{} tonnes", r"{}\text{{ tonnes}}"),
        "45359237/100000000": ("{} pounds", "{} lb", "{} lbs"),
    },
    "time": {
        "1": (r"{}\text{{ s}}", "{} seconds", "{} s", "{} sec"),
        "60": (r"{}\text{{ min}}", "{} minutes", "{} min"),
        "3600": (r"{}\text{{ hours}}", "{} h", "{} hours", "{} hrs"),
        "86400": (r"{}\text{{ days}}", "{} days"),
        "604800": (r"{}\text{{ weeks}}", "{} weeks"),
    },
    "speed": {
        "1": (
            r"{}\text{{ m/s}}",
            "{} m/s",
            "{} meters per second",
            r"{}\frac{{\text{{m}}}}{{\text{{s}}}}",
        ),
        "1000/3600": (r"{}\text{{ km/h}}", "{} km/h", "{} kilometers per hour", "{} kph"),
        "1609344/3600000": (r"{}\text{{ mph}}", "{} mph", "{} miles per hour"),
    },
    "age": {
        "1": (r"{}\text{{ months}}", "{} months"),
        "12": (r"{}\text{{ years}}", "{} years", "{} years old"),
    },
    "dollars": {
        "1": (r"\${}", "{} dollars", r"{}\text{{ dollars}}", "USD {}", "{} USD"),
        "1/100": ("{} cents", r"{}\text{{ cents}}", "{}¢"),
    },
    "euros": {"1": ("€{}", "{} euros", r"{}\text{{ euros}}", "{} EUR")},
    "pounds sterling": {"1": ("£{}", "{} GBP")},
    "percent": {"1": (r"{}\%", "{}%", "{} percent", r"{}\text{{ percent}}")},
    "angle": {"1": (r"{}^\circ", r"{}^{{\circ}}", "{}°", "{} degrees", r"{}\text{{ degrees}}")},
    "energy": {"1": ("{} J", "{} joules"), "1000": ("{} kJ", "{} kilojoules")},
    "power": {"1": ("{} W", "{} watts"), "1000": ("{} kW", "{} kilowatts")},
    "force": {"1": ("{} N", "{} newtons"), "1000": ("{} kN",)},
    "data": {"1": ("{} MB", "{} megabytes")},
    "frequency": {"1": ("{} Hz", "{} hertz"), "1000": ("{} kHz",), "1000000": ("{} MHz",)},
    "voltage": {"1": ("{} V", "{} volts"), "1/1000": ("{} mV",)},
    "temperature in C": {"1": (r"{}^\circ\text{{C}}", "{}°C", "{} degrees Celsius")},
    "temperature in F": {"1": (r"{}^\circ\text{{F}}", "{}°F", "{} degrees Fahrenheit")},
}
# Values whose words differ: an opposite, another category, direction or time.
OPPOSITES = (
    (r"40^\circ\text{{ {}}}", "N", "S"),
    (r"5\text{{ km {}}}", "north", "south"),
    ("5 km {}", "east", "west"),
    ("3 steps to the {}", "left", "right"),
    (r"12\text{{ {}}}", "boys", "girls"),
    ("12 {}", "red marbles", "blue marbles"),
    (r"3\text{{ {}}}", "heads", "tails"),
    ("5 {}", "wins", "losses"),
    (r"x=3 \text{{ ({})}}", "maximum", "minimum"),
    (r"f \text{{ is {}}}", "odd", "even"),
    (r"6\text{{ years {}}}", "older", "younger"),
    (r"4:15 \text{{ {}}}", "PM", "AM"),
    ("7 {}", "p.m.", "a.m."),
    ("3:30 {}", "pm", "am"),
    (r"\text{{{}}}", "increasing", "decreasing"),
    (r"\text{{{}}}", "Yes", "No"),
    (r"\text{{{}}}", "true", "false"),
    (r"\text{{{}}}", "convergent", "divergent"),
    (r"\text{{{}}}", "ellipse", "hyperbola"),
    (r"\text{{{}}}", "rational", "irrational"),
    (r"\text{{{}}}", "Monday", "Tuesday"),
    (r"20\%\text{{ {}}}", "increase", "decrease"),
    ("20% {}", "profit", "loss"),
    ("50 meters {}", "above sea level", "below sea level"),
    (r"90^\circ \text{{ {}}}", "clockwise", "counterclockwise"),
    ("2 hours {}", "before noon", "after noon"),
    ("300 {}", "BC", "AD"),
    (r"5\text{{ {}}}", "chickens", "cows"),
    (r"7\text{{ {} numbers}}", "prime", "composite"),
    ("4 {}", "vertices", "faces"),
    (r"\$5 \text{{ per {}}}", "hour", "day"),
    ("12 apples per {}", "box", "tree"),
    ("{} = 3", "x", "y"),
    ("101_{}", "2", "3"),
    ("{}", "January", "June"),
    ("{}", "Evelyn", "Angela"),
    (r"\text{{{} quadrant}}", "second", "third"),
)
# Values that are the same with other words, or without them.
SAME = (
    (r"12\text{ boys}", "12"), ("12", r"12\text{ boys}"), ("12 boys", "12"),
    ("12 red apples", "12 apples"), (r"12\text{ apples}", r"12 \text{ apple}"),
    (r"3:30 \text{ p.m.}", r"3:30\text{ PM}"), ("3:30 pm", "3:30 P.M."), ("3:30", "3:30"),
    (r"18\text{ square units}", "18"), (r"18\text{ units}^2", "18"), ("18 ways", "18"),
    (r"\text{even}", "even"), ("Even", r"\text{even}"), (r"\textbf{even}", "even"),
    (r"\text{(even)}", "even"), (r"\text{Yes}", "yes"), (r"\text{No solution}", "no solutions"),
    (r"\text{no solutions}", r"\text{No solution}"), (r"\text{undefined}", "undefined"),
    (r"\text{Evelyn}", "Evelyn"), ("Evelyn", r"\text{Evelyn}"), (r"\mathrm{Evelyn}", "Evelyn"),
    (r"12 \text{ (twelve)}", "12"), ("12 (twelve)", "12"), (r"\text{twelve } (12)", "12"),
    (r"7\text{ is the answer}", "7"), (r"\text{There are } 7 \text{ ways}", "7"),
    (r"\text{The area is } 12 \text{ square meters}", "12"), (r"\text{Area: } 12", "12"),
    (r"\text{so } x = 7", "7"), (r"5\text{ in all}", "5"), ("5 in total", "5"),
    (r"f \text{ is odd}", r"f\text{ is odd}"), (r"\infty", r"+\infty"),
    (r"\text{infinitely many}", "infinitely many"), (r"\text{3 quarters}", r"\text{3 quarters}"),
    (r"101_2", r"101_{2}"), (r"101_{\text{2}}", "101_2"), (r"\text{(B)}", r"\text{(B)}"),
    (r"3:4", "3 : 4"), (r"\text{3 : 4}", "3:4"), (r"x=3 \text{ (maximum)}", "3"),
)  # fmt: skip
DIFFERENT = (
    (r"12 \text{ (thirteen)}", "12"), ("12 (thirteen)", "12"), (r"12\text{ dozen}", "12"),
    (r"5 \text{ thousand}", "5"), ("80 grand", "80"), ("80 permille", "80"), ("half of 12", "12"),
    (r"\text{not } 7", "7"), (r"\text{about } 7", "7"), (r"\text{at least } 7", "7"),
    (r"\text{less than } 7", "7"), (r"7 \text{ or more}", "7"), (r"7\text{ to }9", "7"),
    (r"\text{The answer is not } 7", "7"), (r"\text{One solution}", "no solution"),
    (r"3\quad 4", "34"), ("3_4", "3"), ("3 4", "34"), ("3 4", "4"), ("4:3", "3:4"),
    (r"5\sqrt{2}\text{ m}", r"5\sqrt{2}\text{ cm}"), (r"10\pi\text{ cm}^2", r"10\pi\text{ cm}^3"),
    (r"5\text{ km}", r"5\text{ km/h}"), (r"7!", "7"), (r"7^\circ\text{C}", r"7^\circ\text{F}"),
    (r"7 \text{ squared}", "7"), (r"\text{twice } 7", "7"), (r"\text{minus } 7", "7"),
    (r"x \neq 7", "7"), (r"x > 7", "7"), (r"\sim 7", "7"), (r"7k", "7"), ("7x", "7"),
    (r"7\pi", "7"), (r"7 \text{ remainder } 3", "7"), (r"7 \pmod{10}", "3"),
    (r"\text{(A)}", r"\text{(B)}"),
)  # fmt: skip


def quantities(r: Random) -> Iterator[tuple[str, str, bool]]:
    """Each unit as the truth: the same quantity, the same number of another unit, and others."""
    others = [(d, size) for d, units in UNITS.items() for size in units]
    for dimension, units in UNITS.items():
        for size, spellings in units.items():
            number = r.randint(2, 60) * 10
            truth = r.choice(spellings).format(number)
            yield r.choice(spellings).format(number), truth, True
            yield r.choice(spellings).format(number + 1), truth, False
            yield str(number), truth, True
            yield r.choice(spellings).format(number), str(number), True
            for other, texts in units.items():
                value = number * Fraction(size) / Fraction(other)
                # Only of numbers that are finite decimals.
                if other != size and value.denominator in (1, 2, 4, 5, 8, 10, 20, 25, 50, 100):
                    yield r.choice(texts).format(decimal(value)), truth, True
                if other != size:
                    yield r.choice(texts).format(number), truth, False
            # A bare 5 is 5 of any unit, but 5 kg are no 5 m.
            for kind, foreign in r.sample(others, 3):
                if kind != dimension:
                    yield r.choice(UNITS[kind][foreign]).format(number), truth, False


def decimal(value: Fraction) -> str:
    """The exact digits of a fraction whose denominator divides 100."""
    whole, rest = divmod(value, 1)
    digits = f"{int(rest * 1000):03}".rstrip("0")
    return f"{whole}.{digits}" if digits else str(whole)


def opposites() -> Iterator[tuple[str, str, bool]]:
    """Each of two texts that differ in a word, for itself and for the other."""
    for text, one, other in OPPOSITES:
        for answer, truth in ((one, one), (other, other), (one, other), (other, one)):
            yield text.format(answer), text.format(truth), answer == truth


def two_answers(r: Random) -> Iterator[Row]:
    """Two values, of which one is right, or which are one value."""
    values = ("7", r"\frac{3}{4}", r"2\sqrt{3}", "12.5", "x+1", r"\frac{\pi}{2}", "1,234", "3i")
    for layout in BOTH:
        for truth in values:
            other = r.choice([value for value in values if value != truth])
            a, b = r.sample((truth, other), 2)
            yield Row("maths", "two answers", layout.format(a=a, b=b), truth, False)
    for truth in values:
        yield Row("maths", "two answers", rf"\boxed{{{truth}}}, so \boxed{{{truth}}}", truth, True)


def rows(r: Random) -> Iterator[Row]:
    """Quantities, words and several answers for the grader of maths."""
    plain = tuple(layout for layout in LAYOUTS if "#" not in layout)
    yield from laid_out("maths", "quantities", quantities(r))
    yield from laid_out("maths", "opposites", opposites())
    yield from laid_out("maths", "words", [(a, t, True) for a, t in SAME], plain)
    yield from laid_out("maths", "words", [(a, t, False) for a, t in DIFFERENT], plain)
    yield from two_answers(r)
