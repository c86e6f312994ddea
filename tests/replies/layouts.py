"""Rows of the corpus, and the layouts in which models write an answer."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import cycle


@dataclass(frozen=True, slots=True)
class Row:
    """A labelled reply.

    grader: its name without "grade_". kind: of the reply, by which misses are counted.
    """

    grader: str
    kind: str
    reply: str
    truth: str
    right: bool


# {} is the answer.
LAYOUTS = (
    r"\boxed{{{}}}",
    r"So the answer is $\boxed{{{}}}$.",
    "<answer>{}</answer>",
    "The answer is ${}$.",
    r"Therefore we have" "\n\n" r"\[ \boxed{{{}}} \]",
    "<think>It may be 101, or 102?</think>\n\n**Answer:** ${}$",
    r"### Final answer" "\n\n" r"$$\boxed{{{}}}$$",
    "<think>Step 1. 17 + 4 is 21.</think>\n<answer>\n{}\n</answer>",
    "Final Answer: The final answer is ${}$. I hope it is correct.",
    r"**Final Answer**" "\n\n" r"\(\boxed{{{}}}\)",
    "Step 1: 12 is even.\nStep 2: so is 14.\n\n#### {}",
    r"<answer>$\boxed{{{}}}$</answer>",
    r"Hence, $$\boxed{{{}}}.$$" "\n\nThis completes the solution.",
    "Answer: {}",
    "<answer>The answer is ${}$.</answer>",
    r"\boxed{{\text{{The answer is }} {}}}",
    r"Thus the final answer is: \[\boxed{{{}}}\] <|im_end|>",
    "${}$",
)
BOTH = (
    r"\boxed{{{a}}} or \boxed{{{b}}}",
    r"Either $\boxed{{{a}}}$ is right, or $\boxed{{{b}}}$.",
    "<answer>{a}</answer>\n<answer>{b}</answer>",
    r"\boxed{{{a} \text{{ or }} {b}}}",
    "<answer>{a} or {b}</answer>",
    "The answer is ${a}$ or ${b}$.",
    "<answer>either ${a}$ or ${b}$</answer>",
    r"\boxed{{{a}}}. Alternatively: \boxed{{{b}}}",
    r"\boxed{{{a} \quad {b}}}",
    "Answer: maybe ${a}$, maybe ${b}$",
)


def laid_out(
    grader: str,
    kind: str,
    pairs: Iterable[tuple[str, str, bool]],
    layouts: tuple[str, ...] = LAYOUTS,
) -> Iterator[Row]:
    """A row for each answer, truth and label, in one layout after the other."""
    for (answer, truth, right), layout in zip(pairs, cycle(layouts), strict=False):
        yield Row(grader, kind, layout.format(answer), truth, right)
