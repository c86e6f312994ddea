r"""Replies with values of mathematics, labelled by sympy from a second text of each value.

A family is some spellings of values: each a text of LaTeX or plain text, and the value in sympy's
own notation, written independently of it. Two spellings are equal if sympy says that the values
are. Nothing here is read by a grader.
"""

from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from random import Random

import sympy

from replies.layouts import Row, laid_out

Spelling = tuple[str, str]
"""A text, and its value in sympy's notation."""


def fractions(n: int, r: Random) -> list[Spelling]:
    p, q = 2 * n + 1, r.choice((2, 4, 8))
    value, whole = f"Rational({p},{q})", p // q
    return [
        (rf"\frac{{{p}}}{{{q}}}", value),
        (rf"\dfrac{{{p}}}{{{q}}}", value),
        (f"{p}/{q}", value),
        (f"{p / q}", value),
        (rf"\frac{{{3 * p}}}{{{3 * q}}}", value),
        (rf"{whole}\frac{{{p % q}}}{{{q}}}", value),
        (f"{whole} {p % q}/{q}", value),
        (rf"\left(\frac{{{p}}}{{{q}}}\right)", value),
        (rf"p = \frac{{{p}}}{{{q}}}", value),
        (rf"\frac{{{p}}}{{{q}}} = {p / q}", value),
        (rf"{p} \div {q}", value),
        (rf"\frac{{{q}}}{{{p}}}", f"Rational({q},{p})"),
        (rf"-\frac{{{p}}}{{{q}}}", f"Rational(-{p},{q})"),
        (f"{p}.{q}", f"Rational('{p}.{q}')"),
        (f"{p / q + 0.5}", f"Rational({2 * p + q},{2 * q})"),
        (rf"{whole + 1}\frac{{{p % q}}}{{{q}}}", f"Rational({p + q},{q})"),
        (f"{p}", f"{p}"),
    ]


def short_fractions(n: int, r: Random) -> list[Spelling]:
    p, q = r.choice(((1, 2), (3, 7), (5, 9), (2, 3), (7, 4)))
    value = f"Rational({p},{q})"
    return [
        (rf"\frac{p}{q}", value),
        (rf"\dfrac {p}{q}", value),
        (rf"\tfrac{{{p}}}{q}", value),
        (f"{p}/{q}", value),
        (f"({p}/{q})", value),
        (rf"{{{p} \over {q}}}", value),
        (rf"{{{p}}}/{{{q}}}", value),
        (rf"\frac{q}{p}", f"Rational({q},{p})"),
        (rf"\frac{{{p}{q}}}{{{q}}}", f"Rational({p}{q},{q})"),
        (f"0.{p}{q}", f"Rational('0.{p}{q}')"),
    ]


def repeating(n: int, r: Random) -> list[Spelling]:
    digits = r.choice(("3", "6", "27", "142857", "45"))
    value = f"Rational({digits},{'9' * len(digits)})"
    return [
        (rf"0.\overline{{{digits}}}", value),
        (rf".\overline{{{digits}}}", value),
        (rf"0.{digits}\overline{{{digits}}}", value),
        (str(sympy.Rational(int(digits), int("9" * len(digits)))), value),
        (rf"0.\bar{{{digits}}}", value),
        (rf"1.\overline{{{digits}}}", f"1+{value}"),
        (f"0.{digits}", f"Rational('0.{digits}')"),
        (rf"0.0\overline{{{digits}}}", f"{value}/10"),
        (rf"0.{digits}{digits}", f"Rational('0.{digits}{digits}')"),
    ]


def roots(n: int, r: Random) -> list[Spelling]:
    b = r.choice((2, 3, 5, 7))
    value = f"{n}*sqrt({b})"
    return [
        (rf"{n}\sqrt{{{b}}}", value),
        (rf"\sqrt{{{n * n * b}}}", value),
        (f"{n}√{b}", value),
        (f"{n}sqrt({b})", value),
        (f"{n}*sqrt({b})", value),
        (rf"{n} \cdot \sqrt{b}", value),
        (rf"{n} \times {b}^{{1/2}}", value),
        (rf"\frac{{{n * b}}}{{\sqrt{{{b}}}}}", value),
        (rf"\sqrt{{{b}}} \cdot {n}", value),
        (rf"x = {n}\sqrt{{{b}}}", value),
        (rf"{n}\sqrt{{{b}}} \approx {n * b**0.5:.2f}", value),
        (rf"\sqrt{{{n * b}}}", f"sqrt({n * b})"),
        (rf"{n + 1}\sqrt{{{b}}}", f"{n + 1}*sqrt({b})"),
        (rf"{n}\sqrt[3]{{{b}}}", f"{n}*cbrt({b})"),
        (rf"-{n}\sqrt{{{b}}}", f"-{n}*sqrt({b})"),
        (rf"{n} + \sqrt{{{b}}}", f"{n}+sqrt({b})"),
        (f"{n}{b}", f"{n}{b}"),
    ]


def surds(n: int, r: Random) -> list[Spelling]:
    b = r.choice((2, 3, 5, 7))
    value = f"({n}+sqrt({b}))/2"
    return [
        (rf"\frac{{{n}+\sqrt{{{b}}}}}{{2}}", value),
        (rf"\frac{{\sqrt{{{b}}}+{n}}}{{2}}", value),
        (f"({n}+√{b})/2", value),
        (rf"\frac{{{n}}}{{2}} + \frac{{\sqrt{{{b}}}}}{{2}}", value),
        (rf"\frac{{1}}{{2}}({n}+\sqrt{{{b}}})", value),
        (rf"\frac12\left({n}+\sqrt {b}\right)", value),
        (rf"\frac{{{n}-\sqrt{{{b}}}}}{{2}}", f"({n}-sqrt({b}))/2"),
        (rf"{n}+\frac{{\sqrt{{{b}}}}}{{2}}", f"{n}+sqrt({b})/2"),
        (rf"\frac{{{n}\sqrt{{{b}}}}}{{2}}", f"{n}*sqrt({b})/2"),
    ]


def logarithms(n: int, r: Random) -> list[Spelling]:
    base, power = r.choice(((2, 3), (3, 4), (5, 2), (10, 3), (2, 10)))
    value, x = str(power), base**power
    return [
        (rf"\log_{base} {x}" if base < 10 else rf"\log_{{{base}}} {x}", value),
        (rf"\log_{{{base}}} {x}", value),
        (rf"\log_{{{base}}}({x})", value),
        (
            rf"\log_{base}\left({x}\right)" if base < 10 else rf"\log_{{{base}}}\left({x}\right)",
            value,
        ),
        (rf"\frac{{\ln {x}}}{{\ln {base}}}", value),
        (rf"\frac{{\log {x}}}{{\log {base}}}", value),
        (rf"\ln e^{power}" if power < 10 else rf"\ln e^{{{power}}}", value),
        (rf"e^{{\ln {power}}}", value),
        (f"{power}", value),
        (f"{power}.0", value),
        (rf"\log_{{{base}}} {x} = {power}", value),
        (f"{x}", f"{x}"),
        (rf"\log_{{{x}}} {base}", f"Rational(1,{power})"),
        (rf"\log_{{{base}}} {x * base}", f"{power + 1}"),
        (f"{base} {x}", f"{base}*{x}"),
    ]


def natural_logarithms(n: int, r: Random) -> list[Spelling]:
    a, b = r.sample((2, 3, 5, 7), 2)
    value = f"log({a})/log({b})"
    return [
        (rf"\log_{b} {a}", value),
        (rf"\log_{{{b}}} {a}", value),
        (rf"\log_{b}({a})", value),
        (rf"\frac{{\ln {a}}}{{\ln {b}}}", value),
        (rf"\frac{{\ln({a})}}{{\ln({b})}}", value),
        (f"ln({a})/ln({b})", value),
        (rf"\frac{{\log {a}}}{{\log {b}}}", value),
        (rf"\frac{{1}}{{\log_{a} {b}}}", value),
        (rf"\log_{a} {b}", f"log({b})/log({a})"),
        (rf"\ln {a}", f"log({a})"),
        (rf"\frac{{{a}}}{{{b}}}", f"Rational({a},{b})"),
    ]


def angles(n: int, r: Random) -> list[Spelling]:
    name, degrees, part, value = r.choice(
        (("sin", 30, 6, "Rational(1,2)"), ("cos", 60, 3, "Rational(1,2)"),
         ("tan", 60, 3, "sqrt(3)"), ("sin", 60, 3, "sqrt(3)/2"), ("cos", 45, 4, "sqrt(2)/2"))
    )  # fmt: skip
    return [
        (rf"\{name} {degrees}^\circ", value),
        (rf"\{name} {degrees}^{{\circ}}", value),
        (rf"\{name}({degrees}^\circ)", value),
        (rf"\{name}({degrees}°)", value),
        (rf"\{name}\frac{{\pi}}{{{part}}}", value),
        (rf"\{name}\left(\frac{{\pi}}{{{part}}}\right)", value),
        (f"{name}(pi/{part})", value),
        (f"{name}(π/{part})", value),
        (sympy.latex(sympy.sympify(value)), value),
        (rf"\{name}^2 {degrees}^\circ", f"({value})**2"),
        (f"{degrees}", f"{degrees}"),
        (rf"\frac{{\pi}}{{{part}}}", f"pi/{part}"),
    ]


def squared_sines(n: int, r: Random) -> list[Spelling]:
    value = "Rational(1,2)"
    return [
        (r"\sin^2 45^\circ", value),
        (r"\sin^{2} 45^{\circ}", value),
        (r"\sin^2\left(\frac{\pi}{4}\right)", value),
        (r"\cos^2 45^\circ", value),
        (r"(\sin 45^\circ)^2", value),
        (r"\frac12", value),
        ("0.5", value),
        (r"\sin 45^\circ \cos 45^\circ", value),
        (r"1 - \sin^2 45^\circ", value),
        (r"\sin 45^\circ", "sqrt(2)/2"),
        (r"\sin^2 30^\circ", "Rational(1,4)"),
        ("45", "45"),
    ]


def inverse_functions(n: int, r: Random) -> list[Spelling]:
    value = "pi/4"
    return [
        (r"\arctan 1", value),
        (r"\arctan(1)", value),
        ("arctan(1)", value),
        (r"\tan^{-1}(1)", value),
        (r"\frac{\pi}{4}", value),
        ("π/4", value),
        ("pi/4", value),
        (r"\frac14\pi", value),
        (r"0.25\pi", value),
        (r"\arcsin\frac{\sqrt2}{2}", value),
        (r"\arccos 1", "0"),
        (r"\arctan 2", "atan(2)"),
        (r"\frac{\pi}{2}", "pi/2"),
        (r"\frac{4}{\pi}", "4/pi"),
    ]


def binomials(n: int, r: Random) -> list[Spelling]:
    a, b = r.choice(((5, 2), (6, 3), (7, 2), (8, 4), (9, 3)))
    value = f"binomial({a},{b})"
    number = sympy.binomial(a, b)
    return [
        (rf"\binom{{{a}}}{{{b}}}", value),
        (rf"\binom {a} {b}", value),
        (rf"\binom{a}{b}", value),
        (rf"\dbinom{{{a}}}{{{b}}}", value),
        (rf"{{{a} \choose {b}}}", value),
        (rf"\frac{{{a}!}}{{{b}!\,{a - b}!}}", value),
        (rf"\frac{{{a}!}}{{{b}! \cdot {a - b}!}}", value),
        (rf"\binom{{{a}}}{{{b}}} = {number}", value),
        (f"{number}", value),
        (rf"\binom{{{a}}}{{{b}}}", value),
        (rf"\binom{{{a + 1}}}{{{b}}}", f"binomial({a + 1},{b})"),
        (rf"\frac{{{a}}}{{{b}}}", f"Rational({a},{b})"),
        (f"{a}{b}", f"{a}{b}"),
        (rf"{a}^{b}", f"{a**b}"),
    ]


def factorials(n: int, r: Random) -> list[Spelling]:
    a = r.randint(4, 8)
    value = f"factorial({a})"
    number = int(sympy.factorial(a))
    return [
        (f"{a}!", value),
        (f"{number}", value),
        (f"{number:,}", value),
        (f"{number:,}".replace(",", "{,}"), value),
        (rf"{a} \cdot {a - 1}!", value),
        (rf"{a} \times {a - 1}!", value),
        (rf"{a}! = {number}", value),
        (rf"\frac{{{a + 1}!}}{{{a + 1}}}", value),
        (f"{a - 1}!", f"factorial({a - 1})"),
        (f"{a}", f"{a}"),
        (rf"\frac{{{a}!}}{{2}}", f"factorial({a})/2"),
    ]


def powers(n: int, r: Random) -> list[Spelling]:
    k = r.randint(10, 16)
    value, number = f"2**{k}", 2**k
    return [
        (f"2^{{{k}}}", value),
        (f"2**{k}", value),
        (f"{number}", value),
        (f"{number:,}", value),
        (rf"2^{{{k - 1}}} \cdot 2", value),
        (rf"2^{{{k - 2}}} \times 4", value),
        (rf"2^{{{k}}} = {number}", value),
        (rf"2 \cdot 2^{{{k - 1}}}", value),
        (rf"\frac{{1}}{{2^{{-{k}}}}}", value),
        (f"2^{{{k + 1}}}", f"2**{k + 1}"),
        (f"2^{{-{k}}}", f"2**(-{k})"),
        (f"2{k}", f"2{k}"),
        (f"{k}^2", f"{k}**2"),
        (f"{number}0", f"{number}0"),
    ]


def prime_products(n: int, r: Random) -> list[Spelling]:
    a, b = r.randint(2, 5), r.randint(2, 4)
    value = f"2**{a}*3**{b}*5"
    return [
        (rf"2^{a} \cdot 3^{b} \cdot 5", value),
        (rf"2^{a} \times 3^{b} \times 5", value),
        (f"2^{a} 3^{b} 5", value),
        (rf"5 \cdot 3^{b} \cdot 2^{a}", value),
        (f"{2**a * 3**b * 5}", value),
        (f"{2**a * 3**b * 5:,}", value),
        (rf"2^{b} \cdot 3^{a} \cdot 5" if a != b else rf"2^{a} \cdot 3^{b + 1} \cdot 5",
         f"2**{b}*3**{a}*5" if a != b else f"2**{a}*3**{b + 1}*5"),
        (rf"2^{a} + 3^{b} + 5", f"2**{a}+3**{b}+5"),
        (rf"2^{a} \cdot 3^{b}", f"2**{a}*3**{b}"),
    ]  # fmt: skip


def circles(n: int, r: Random) -> list[Spelling]:
    value = f"{n}*pi"
    return [
        (rf"{n}\pi", value),
        (f"{n}π", value),
        (f"{n}*pi", value),
        (f"{n}pi", value),
        (rf"{n} \cdot \pi", value),
        (rf"\pi \cdot {n}", value),
        (rf"A = {n}\pi", value),
        (rf"\frac{{{2 * n}\pi}}{{2}}", value),
        (rf"{n}\pi \approx {n * 3.14159265:.2f}", value),
        (rf"{n + 1}\pi", f"{n + 1}*pi"),
        (rf"\frac{{{n}}}{{\pi}}", f"{n}/pi"),
        (rf"{n}\pi^2", f"{n}*pi**2"),
        (f"{n}", f"{n}"),
        (rf"{n} + \pi", f"{n}+pi"),
    ]


def polynomials(n: int, r: Random) -> list[Spelling]:
    b = r.randint(1, 6)
    a = b + r.randint(2, 5)
    value = f"(x+{a})*(x-{b})"
    return [
        (f"(x+{a})(x-{b})", value),
        (rf"\left(x+{a}\right)\left(x-{b}\right)", value),
        (f"(x-{b})(x+{a})", value),
        (rf"(x+{a}) \cdot (x-{b})", value),
        (f"(x + {a})*(x - {b})", value),
        (f"x^2+{a}x-{b}x-{a * b}", value),
        (f"x^2+{a - b}x-{a * b}", value),
        (f"x² + {a - b}x - {a * b}", value),
        (f"f(x) = (x+{a})(x-{b})", value),
        (f"(x-{a})(x+{b})", f"(x-{a})*(x+{b})"),
        (f"(x+{a})(x+{b})", f"(x+{a})*(x+{b})"),
        (f"(x+{a})^2", f"(x+{a})**2"),
        (f"x^2-{a * b}", f"x**2-{a * b}"),
        (f"{a * b}", f"{a * b}"),
    ]


def lines(n: int, r: Random) -> list[Spelling]:
    m, c = r.randint(2, 9), r.randint(1, 9)
    value = f"Eq(y,{m}*x+{c})"
    return [
        (f"y={m}x+{c}", value),
        (f"y = {m}x + {c}", value),
        (f"y = {c} + {m}x", value),
        (rf"y = {m} \cdot x + {c}", value),
        (f"$y={m}x+{c}$", value),
        (f"y={m}x-{c}", f"Eq(y,{m}*x-{c})"),
        (f"y={c}x+{m}" if m != c else f"y={m + 1}x+{c}",
         f"Eq(y,{c}*x+{m})" if m != c else f"Eq(y,{m + 1}*x+{c})"),
        (f"x={m}y+{c}", f"Eq(x,{m}*y+{c})"),
        (f"y={m}x", f"Eq(y,{m}*x)"),
    ]  # fmt: skip


def complex_numbers(n: int, r: Random) -> list[Spelling]:
    a, b = r.randint(2, 9), r.randint(2, 9)
    value = f"{a}+{b}*I"
    return [
        (f"{a}+{b}i", value),
        (f"{a} + {b}i", value),
        (f"{b}i+{a}", value),
        (rf"{a} + {b} \cdot i", value),
        (f"z = {a}+{b}i", value),
        (f"({a}+{b}i)", value),
        (f"{a}-{b}i", f"{a}-{b}*I"),
        (f"{b}+{a + 1}i", f"{b}+{a + 1}*I"),
        (f"{a}", f"{a}"),
        (f"{a + b}", f"{a + b}"),
    ]


def exponentials(n: int, r: Random) -> list[Spelling]:
    k = r.randint(2, 9)
    value = f"exp({k})-1"
    return [
        (f"e^{k}-1", value),
        (f"e^{{{k}}} - 1", value),
        (f"-1 + e^{k}", value),
        (f"exp({k}) - 1", value),
        (rf"\exp({k}) - 1", value),
        (f"-1 + exp({k})", value),
        (rf"\mathrm{{e}}^{k} - 1", value),
        (f"e^{k}+1", f"exp({k})+1"),
        (f"1-e^{k}", f"1-exp({k})"),
        (f"e^{{{k}-1}}", f"exp({k - 1})"),
        (f"e^{k}", f"exp({k})"),
    ]


def rounding(n: int, r: Random) -> list[Spelling]:
    value = str(n)
    return [
        (rf"\lfloor {n}.7 \rfloor", value),
        (rf"\left\lfloor {n}.7 \right\rfloor", value),
        (rf"\lceil {n - 1}.2 \rceil", value),
        (rf"|-{n}|", value),
        (rf"\left|-{n}\right|", value),
        (f"{n}", value),
        (rf"\sqrt[3]{{{n**3}}}", value),
        (rf"\sqrt{{{n * n}}}", value),
        (rf"\lceil {n}.7 \rceil", f"{n + 1}"),
        (rf"-|{n}|", f"-{n}"),
        (f"-{n}", f"-{n}"),
        (f"{n}.7", f"Rational('{n}.7')"),
    ]


def decimals(n: int, r: Random) -> list[Spelling]:
    a, b = r.randint(1, 99), r.randint(11, 99)
    value = f"Rational('{a}.{b}')"
    return [
        (f"{a}.{b}", value),
        (f"{a}.{b}0", value),
        (f"+{a}.{b}", value),
        (rf"\frac{{{a}{b}}}{{100}}", value),
        (f"{a}{b}e-2", value),
        (rf"{a}{b} \times 10^{{-2}}", value),
        (f"{a}.{b}1", f"Rational('{a}.{b}1')"),
        (
            f"{b}.{a}" if a != b else f"{a}.{b}9",
            f"Rational('{b}.{a}')" if a != b else f"Rational('{a}.{b}9')",
        ),
        (f"{a}{b}", f"{a}{b}"),
        (f"-{a}.{b}", f"-Rational('{a}.{b}')"),
        (f"{a}", f"{a}"),
    ]


def thousands(n: int, r: Random) -> list[Spelling]:
    a, b = r.randint(1, 99), r.randint(0, 999)
    value, b3 = str(1000 * a + b), f"{b:03}"
    return [
        (value, value),
        (f"{a},{b3}", value),
        (f"{a}{{,}}{b3}", value),
        (rf"{a}\,{b3}", value),
        (rf"{a},\!{b3}", value),
        (f"{a} {b3}", value),
        (f"{a}\u202f{b3}", value),
        (f"{a},{b3}.00", value),
        (rf"\text{{{a},{b3}}}", value),
        (f"N = {a},{b3}", value),
        (f"{a}.{b3}1", f"Rational('{a}.{b3}1')"),
        (f"{a},{b3},000", f"{value}000"),
        (f"-{a},{b3}", f"-{value}"),
        (f"{a}", f"{a}"),
    ]


def scientific(n: int, r: Random) -> list[Spelling]:
    k = r.randint(3, 8)
    m = r.choice(("3", "1.5", "2.25", "6.02"))
    value = f"Rational('{m}')*10**{k}"
    return [
        (rf"{m} \times 10^{k}", value),
        (rf"{m} \times 10^{{{k}}}", value),
        (rf"{m} \cdot 10^{k}", value),
        (f"{m}e{k}", value),
        (f"{m}E{k}", value),
        (f"{m} × 10^{k}", value),
        (f"{int(Fraction(m) * 10**k)}", value),
        (f"{int(Fraction(m) * 10**k):,}", value),
        (rf"{m} \times 10^{{-{k}}}", f"Rational('{m}')*10**(-{k})"),
        (rf"{m} \times 10^{k + 1}", f"Rational('{m}')*10**{k + 1}"),
        (m, f"Rational('{m}')"),
    ]


def points(n: int, r: Random) -> list[Spelling]:
    a, b = r.sample(range(-9, 10), 2)
    value = f"({a},{b})"
    return [
        (f"({a},{b})", value),
        (f"({a}, {b})", value),
        (rf"\left({a},{b}\right)", value),
        (rf"\left( {a}, {b} \right)", value),
        (f"(x,y)=({a},{b})", value),
        (f"(x, y) = ({a}, {b})", value),
        (rf"\big({a}, {b}\big)", value),
        (f"({b},{a})", f"({b},{a})"),
        (f"({a},{b + 1})", f"({a},{b + 1})"),
        (f"({a},{b},0)", f"({a},{b},0)"),
        (f"({-a - 1},{b})", f"({-a - 1},{b})"),
    ]


def sets(n: int, r: Random) -> list[Spelling]:
    a, b, c = sorted(r.sample(range(-9, 20), 3))
    value = f"FiniteSet({a},{b},{c})"
    return [
        (rf"\{{{a},{b},{c}\}}", value),
        (rf"\{{{a}, {b}, {c}\}}", value),
        (rf"\left\{{{a},{b},{c}\right\}}", value),
        (rf"\{{{c},{a},{b}\}}", value),
        (f"{{{a},{b},{c}}}", value),
        (f"{a}, {b}, {c}", value),
        (f"{b}, {c}, {a}", value),
        (rf"{a}, {b} \text{{ and }} {c}", value),
        (f"{a}, {b}, and {c}", value),
        (f"x = {a}, {b}, {c}", value),
        (rf"x \in \{{{a},{b},{c}\}}", value),
        (rf"\{{{a},{b}\}}", f"FiniteSet({a},{b})"),
        (rf"\{{{a},{b},{c},{c + 1}\}}", f"FiniteSet({a},{b},{c},{c + 1})"),
        (f"{a}, {b}, {c + 1}", f"FiniteSet({a},{b},{c + 1})"),
        (f"{a}", f"FiniteSet({a})"),
    ]


def two_roots(n: int, r: Random) -> list[Spelling]:
    value = f"FiniteSet({n},-{n})"
    return [
        (rf"\pm {n}", value),
        (rf"\pm{n}", value),
        (f"±{n}", value),
        (f"{n}, -{n}", value),
        (f"-{n}, {n}", value),
        (rf"\{{-{n},{n}\}}", value),
        (rf"x = \pm {n}", value),
        (rf"x = {n} \text{{ or }} x = -{n}", value),
        (f"x = {n}, x = -{n}", value),
        (rf"{n} \text{{ and }} -{n}", value),
        (rf"\pm {n + 1}", f"FiniteSet({n + 1},-{n + 1})"),
        (f"{n}", f"FiniteSet({n})"),
        (f"-{n}", f"FiniteSet(-{n})"),
        (f"{n}, -{n + 1}", f"FiniteSet({n},-{n + 1})"),
    ]


def intervals(n: int, r: Random) -> list[Spelling]:
    a, b = sorted(r.sample(range(-9, 10), 2))
    value = f"Interval.Lopen({a},{b})"
    return [
        (f"({a},{b}]", value),
        (f"({a}, {b}]", value),
        (rf"\left({a},{b}\right]", value),
        (rf"x \in ({a},{b}]", value),
        (rf"{a} < x \le {b}", value),
        (rf"{a} < x \leq {b}", value),
        (f"{a} < x ≤ {b}", value),
        (f"{a} < x <= {b}", value),
        (rf"{b} \ge x > {a}", value),
        (rf"\{{x \mid {a} < x \le {b}\}}", value),
        (rf"\{{x : {a} < x \leq {b}\}}", value),
        (f"({a},{b})", f"Interval.open({a},{b})"),
        (f"[{a},{b}]", f"Interval({a},{b})"),
        (rf"{a} \le x < {b}", f"Interval.Ropen({a},{b})"),
        (f"({a},{b + 1}]", f"Interval.Lopen({a},{b + 1})"),
        (rf"x > {a}", f"Interval.open({a},oo)"),
    ]


def rays(n: int, r: Random) -> list[Spelling]:
    value = f"Interval.open({n},oo)"
    return [
        (rf"({n},\infty)", value),
        (rf"({n}, \infty)", value),
        (rf"({n}, +\infty)", value),
        (f"({n}, ∞)", value),
        (f"x > {n}", value),
        (f"x>{n}", value),
        (f"{n} < x", value),
        (rf"x \in ({n},\infty)", value),
        (rf"[{n},\infty)", f"Interval({n},oo)"),
        (rf"x \ge {n}", f"Interval({n},oo)"),
        (f"x < {n}", f"Interval.open(-oo,{n})"),
        (rf"(-\infty,{n})", f"Interval.open(-oo,{n})"),
        (f"x > {n + 1}", f"Interval.open({n + 1},oo)"),
    ]


def unions(n: int, r: Random) -> list[Spelling]:
    a, b = -n, n + 2
    value = f"Union(Interval.open(-oo,{a}),Interval.open({b},oo))"
    return [
        (rf"(-\infty,{a})\cup({b},\infty)", value),
        (rf"(-\infty, {a}) \cup ({b}, \infty)", value),
        (rf"({b},\infty)\cup(-\infty,{a})", value),
        (f"(-∞, {a}) ∪ ({b}, ∞)", value),
        (rf"x<{a} \text{{ or }} x>{b}", value),
        (f"x < {a} or x > {b}", value),
        (rf"x \in (-\infty,{a})\cup({b},\infty)", value),
        (rf"(-\infty,{a}]\cup[{b},\infty)", f"Union(Interval(-oo,{a}),Interval({b},oo))"),
        (f"({a},{b})", f"Interval.open({a},{b})"),
        (rf"(-\infty,{a})", f"Interval.open(-oo,{a})"),
        (
            rf"x<{a} \text{{ or }} x>{b + 1}",
            f"Union(Interval.open(-oo,{a}),Interval.open({b + 1},oo))",
        ),
    ]


def matrices(n: int, r: Random) -> list[Spelling]:
    a, b, c, d = (r.randint(-9, 9) for _ in range(4))
    value = f"ImmutableMatrix([[{a},{b}],[{c},{d}]])"
    wrong = f"ImmutableMatrix([[{a},{b}],[{c},{d + 1}]])"
    return [
        (rf"\begin{{pmatrix}} {a} & {b} \\ {c} & {d} \end{{pmatrix}}", value),
        (rf"\begin{{pmatrix}}{a}&{b}\\{c}&{d}\end{{pmatrix}}", value),
        (rf"\begin{{bmatrix}} {a} & {b} \\ {c} & {d} \end{{bmatrix}}", value),
        (rf"\left(\begin{{matrix}} {a} & {b} \\ {c} & {d} \end{{matrix}}\right)", value),
        (rf"A = \begin{{pmatrix}} {a} & {b} \\ {c} & {d} \end{{pmatrix}}", value),
        (rf"\begin{{pmatrix}} {a} & {b} \\ {c} & {d + 1} \end{{pmatrix}}", wrong),
        (rf"\begin{{pmatrix}} {a} & {c} \\ {b + 1} & {d} \end{{pmatrix}}",
         f"ImmutableMatrix([[{a},{c}],[{b + 1},{d}]])"),
        (rf"\begin{{pmatrix}} {a} & {b} \end{{pmatrix}}", f"ImmutableMatrix([[{a},{b}]])"),
    ]  # fmt: skip


def named_values(n: int, r: Random) -> list[Spelling]:
    value = str(n)
    return [
        (f"{n}", value),
        (f"{n}.0", value),
        (f"{2 * n}/2", value),
        (f"x = {n}", value),
        (f"x={n}", value),
        (f"{n} = x", value),
        (f"f(2) = {n}", value),
        (rf"\angle ABC = {n}", value),
        (rf"|AB| = {n}", value),
        (rf"\text{{Area}} = {n}", value),
        (rf"a_{{1}} = {n}", value),
        (rf"S_5 = {n}", value),
        (rf"P(A \cap B) = {n}", value),
        (rf"x = {n - 1} + 1 = {n}", value),
        (f"x = {n + 1}", f"{n + 1}"),
        (f"x + {n} = 0", f"Eq(x,-{n})"),
        (f"x = {n} = {n + 1}", "nan"),
        (f"{n} = x = {n + 2}", "nan"),
    ]


FAMILIES = (
    fractions, short_fractions, repeating, roots, surds, logarithms, natural_logarithms, angles,
    squared_sines, inverse_functions, binomials, factorials, powers, prime_products, circles,
    polynomials, lines, complex_numbers, exponentials, rounding, decimals, thousands, scientific,
    points, sets, two_roots, intervals, rays, unions, matrices, named_values,
)  # fmt: skip


@cache
def is_same(left: str, right: str) -> bool:
    """True if sympy proves that two of its expressions have one value."""
    a, b = sympy.sympify(left), sympy.sympify(right)
    if a == b:
        return a is not sympy.nan
    if not all(isinstance(each, sympy.Expr) and not each.is_Matrix for each in (a, b)):
        return False
    return bool(sympy.simplify(a - b) == 0)


def rows(r: Random) -> Iterator[Row]:
    """Every spelling of every family against the spellings of answer keys, its first three."""
    # Two draws of each family: its numbers change, and so do the layouts.
    for family in FAMILIES:
        for _ in range(2):
            spellings = family(r.randint(2, 12), r)
            keys = spellings[:3]
            chosen = [r.choice(keys) for _ in spellings]
            pairs = [
                (text, truth, is_same(value, right))
                for (text, value), (truth, right) in zip(spellings, chosen, strict=True)
            ]
            yield from laid_out("maths", family.__name__, r.sample(pairs, len(pairs)))
