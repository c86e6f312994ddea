"""Replies for the grader of maths: near misses, and other forms of the truth, by hand."""

from collections.abc import Callable, Iterator
from random import Random

from replies.layouts import Row, laid_out

_WORDS = ("Evelyn", "Navin", "even", "odd")

# Kind -> a truth, and a reply that is nearly right; made with a random number from 2 to 99.
NEAR: tuple[Callable[[int, Random], tuple[str, str]], ...] = (
    lambda n, r: (f"{n}", f"{-n}"),
    lambda n, r: (f"{n}", f"{n + r.choice([-1, 1])}"),
    lambda n, r: (rf"\frac{{{n}}}{{{n + 1}}}", rf"\frac{{{n + 1}}}{{{n}}}"),
    lambda n, r: (rf"\frac{{{n}}}{{7}}" if n % 7 else "3", rf"\frac{{{n + 1}}}{{7}}"),
    lambda n, r: (rf"{n} \text{{ cm}}", rf"{n} \text{{ m}}"),
    lambda n, r: (rf"{n} \text{{ cm}}^2", rf"{n} \text{{ cm}}^3"),
    lambda n, r: (rf"{n} \text{{ minutes}}", f"{n} hours"),
    lambda n, r: (
        f"{n}",
        rf"{n} \text{{ {r.choice(['thousand', 'million', 'dozen', 'hundred'])}}}",
    ),
    lambda n, r: (f"{n}", f"{n} {r.choice(['or', 'and'])} {n + 1}"),
    lambda n, r: (f"{n}", rf"{n} \text{{ or }} {n + 2}"),
    lambda n, r: (f"{n}", f"{n}, {n + 1}"),
    lambda n, r: (
        f"{n}",
        rf"{n - 1} \{r.choice(['lor', 'mid', 'sim'])} {n}",
    ),
    lambda n, r: (f"{n}", rf"\pm {n}"),
    lambda n, r: (
        f"{n}",
        r.choice([f"not {n}", f"maybe {n}", rf"\neq {n}", f"> {n}", rf"\ge {n}"]),
    ),
    lambda n, r: (rf"{n}\frac{{4}}{{5}}", rf"\frac{{{n}4}}{{5}}"),
    lambda n, r: (rf"\frac{{{n}1}}{{2}}", f"{n} 1/2"),
    lambda n, r: (rf"\sqrt{{{n}}}", rf"\sqrt{{{n + 1}}}"),
    lambda n, r: (rf"{n}\sqrt{{3}}", rf"3\sqrt{{{n}}}" if n != 3 else r"4\sqrt{3}"),
    lambda n, r: (rf"{n}\pi", rf"{n}\pi^2"),
    lambda n, r: (f"x^2+{n}x", f"x^2-{n}x"),
    lambda n, r: (f"(x+{n})^2", f"x^2+{n}^2"),
    lambda n, r: (f"(1,{n})", f"({n},1)"),
    lambda n, r: (f"[1,{n}]", f"[1,{n})"),
    lambda n, r: (rf"\{{1,{n}\}}", rf"\{{1,{n},{n + 1}\}}"),
    lambda n, r: (rf"\{{1,{n}\}}", f"{n}"),
    lambda n, r: (f"x \\le {n}", f"x < {n}"),
    lambda n, r: (f"x \\le {n}", f"x \\ge {n}"),
    lambda n, r: (f"y={n}x+1", f"y={n}x-1"),
    lambda n, r: (f"{n}", f"x + 1 = {n}"),
    lambda n, r: (f"2^{{-{n + 50}}}", f"2^{{-{n + 51}}}"),
    lambda n, r: (f"\\frac{{1}}{{{n + 30}!}}", f"\\frac{{1}}{{{n + 31}!}}"),
    lambda n, r: (f"{n / 100:.2f}", rf"{n}\%"),
    lambda n, r: (f"{n}.5", f"{n},5"),
    lambda n, r: (f"{n}", f"{n}e1"),
    lambda n, r: (f"{n}_8", f"{n}_9"),
    lambda n, r: (f"{n}i", f"{n}"),
    lambda n, r: (rf"\text{{{_WORDS[n % 4]}}}", rf"\text{{{_WORDS[(n + 1) % 4]}}}"),
    lambda n, r: (f"{n}:7" if n != 7 else "2:7", f"7:{n}" if n != 7 else "7:2"),
)

# Kind -> a truth and another form of it.
FORMS: tuple[Callable[[int, Random], tuple[str, str]], ...] = (
    lambda n, r: (f"{n * 1234}", f"{n * 1234:,}"),
    lambda n, r: (f"{n * 1234}", f"{n * 1234:,}".replace(",", r"{,}\!")),
    lambda n, r: (rf"\frac{{{n}}}{{8}}", f"{n / 8}"),
    lambda n, r: (rf"\frac{{{n}}}{{{n + 1}}}", rf"\dfrac{{{n}}}{{{n + 1}}}"),
    lambda n, r: (rf"\frac{{{5 * n + 4}}}{{5}}", rf"{n}\frac{{4}}{{5}}"),
    lambda n, r: (rf"\frac{{{2 * n + 1}}}{{2}}", f"{n} 1/2"),
    lambda n, r: (f"{n}", rf"{n}\text{{ cm}}"),
    lambda n, r: (rf"{n}\text{{ cm}}", f"{n}"),
    lambda n, r: (rf"{n}\text{{ cm}}^2", rf"{n}\text{{ square centimeters}}"),
    lambda n, r: (f"{n}", rf"\${n}"),
    lambda n, r: (f"{n}", rf"{n}^\circ"),
    lambda n, r: (f"{n * 100}", rf"{n} \times 10^{{2}}"),
    lambda n, r: (f"{n * 100}", f"{n}e2"),
    lambda n, r: (f"{n}", f"x = {n}"),
    lambda n, r: (rf"\sqrt{{{n * n * 3}}}", rf"{n}\sqrt{{3}}"),
    lambda n, r: (f"x^2+x^3+{n}", f"{n}+x^3+x^2"),
    lambda n, r: (f"{2 * 9 * n}", rf"2\cdot3^2\cdot{n}"),
    lambda n, r: (f"(x+{n})^2", f"x^2+{2 * n}x+{n * n}"),
    lambda n, r: (rf"\{{1,{n}\}}", f"{n}, 1"),
    lambda n, r: (f"1, {n}", rf"1 \text{{ and }} {n}"),
    lambda n, r: (r"(1,\infty)", r"(1, \infty)"),
    lambda n, r: (f"(1,{n})", rf"\left( 1, {n} \right)"),
    lambda n, r: (f"x \\le {n}", f"{n} \\ge x"),
    lambda n, r: (f"1 < x < {n}", f"(1, {n})"),
    lambda n, r: (f"y={n}x+1", f"y = 1+{n}x"),
    lambda n, r: (rf"\pm {n}", f"{n}, -{n}"),
    lambda n, r: (f"{n}+3i", f"3i+{n}"),
    lambda n, r: (rf"\text{{{_WORDS[n % 4]}}}", _WORDS[n % 4]),
    lambda n, r: (f"{n}", f"{n}.0"),
)


def rows(r: Random) -> Iterator[Row]:
    """Two replies of each kind."""
    for kind, makers, right in (("near misses", NEAR, False), ("other forms", FORMS, True)):
        made = [make(r.randint(2, 99), r) for make in (*makers, *makers)]
        yield from laid_out("maths", kind, [(answer, truth, right) for truth, answer in made])
