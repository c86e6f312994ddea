"""Replies to questions with options, for the grader of letters: one letter, or not."""

from collections.abc import Iterator
from random import Random

from replies.layouts import Row

# {a} is the letter, {b} another one, {t} the text of an option and {l} the letter in lower case.
ONE = (
    "{a}", "({a})", "{a}.", "{a})", "{a}:", "**{a}**", "**{a}.**", "[{a}]", "{l}", "({l})",
    '"{a}"', "{a}. {t}", "{a}) {t}", "({a}) {t}", "{a}: {t}", "{a} - {t}", "{a} — {t}",
    "**{a}. {t}**", "**{a})** {t}", "**({a})** {t}", "{a}, {t}", "Option {a}", "option ({a})",
    "Choice {a}", "Option {a}: {t}", "The answer is {a}", "The answer is {a}.",
    "The answer is ({a}).", "The answer is **{a}**.", "The answer is: {a}",
    "The correct answer is {a}.", "The correct answer is ({a}) {t}.", "The correct option is {a}.",
    "The correct choice is {a}.", "Therefore, the correct option is {a}.", "So the answer is {a}.",
    "Thus, the answer is {a}.", "Hence the best answer is {a}.", "The right answer is {a}.",
    "My answer is {a}.", "Answer: {a}", "Answer: ({a})", "Answer: **{a}**", "**Answer: {a}**",
    "**Answer:** {a}", "**Answer**: {a}", "ANSWER: {a}", "Answer: {a}. {t}", "Answer: {a}) {t}",
    "Answer - {a}", "Final answer: {a}", "**Final Answer:** {a}", "### Final Answer\n{a}",
    "### Final Answer\n\n**{a}**", "## Answer\n\n{a}", "### Answer: {a}",
    "Final Answer: ({a}) {t}", "Answer:\n{a}", "Answer:\n\n{a}. {t}", "Correct answer: {a}",
    "Correct option: {a}", r"\boxed{{{a}}}", r"$\boxed{{{a}}}$", r"\boxed{{({a})}}",
    r"\boxed{{{a}.}}", r"\boxed{{\text{{{a}}}}}", r"\boxed{{\textbf{{({a})}}}}",
    r"\boxed{{\text{{({a})}}}}", r"\boxed{{\mathrm{{{a}}}}}", r"\boxed{{\text{{{a}. {t}}}}}",
    r"\boxed{{{a}: \text{{{t}}}}}", r"\boxed{{\textbf{{({a})}}\ 12}}",
    r"The answer is $\boxed{{{a}}}$.", r"Therefore, the answer is \(\boxed{{{a}}}\).",
    r"\textbf{{({a})}}", r"\textbf{{({a})}}\ 12", r"The answer is $\text{{({a})}}$.",
    "<answer>{a}</answer>", "<answer>({a})</answer>", "<answer> {a} </answer>",
    "<answer>\n{a}\n</answer>", "<answer>{a}. {t}</answer>", "<answer>{l}</answer>",
    "<answer>Option {a}</answer>", "<answer>The answer is {a}.</answer>",
    "<answer>**{a}**</answer>", r"<answer>\boxed{{{a}}}</answer>",
    "<answer>{a}</answer>\nIt is well known.",
    "Let us see. {b} is too small.\n\n<answer>{a}</answer>", "<think>{b}? No, {a}.</think>\n{a}",
    "<think>{b}? No, {a}.</think>\n\nThe answer is {a}.",
    "<think>{b}?</think><answer>{a}</answer>", "<think>Is it {b}?</think>\n\n**{a}**",
    "{a}\n\nExplanation: it follows from the text.", "{a}\nBecause it is so.",
    "{a}\n\n{b} is wrong since it is too small.", "{a}. {t}\n\nThe others are too small.",
    "**{a}**\n\nReasoning: it follows.", "({a}) because it is the largest.",
    "{a}, because it is the largest.", "{a} because {b} is too small.",
    "{a}, since it is the largest.",
    "Answer: {a}\n\nExplanation: {b} is wrong because it is small.",
    "Answer: {a} because it is the largest", "The answer is {a} because it is the largest.",
    "The answer is {a}, since {b} is too small.", "Option {a} is correct.", "{a} is correct.",
    "{a} is the correct answer.", "{a} is the answer.", "({a}) is right.", "**{a}** is correct.",
    "I choose {a}.", "I pick {a}", "I would choose {a}.", "I select option {a}.",
    "The correct answer is option {a}.", "The answer is option {a}: {t}.", "It is {a}.",
    "It's {a}.", "Step 1: {b} is too small.\nStep 2: it is the largest.\n\nThe answer is {a}.",
    "{b} is too small, and it cannot hold.\n\nThe correct answer is {a}.",
    "We compare all four.\n\nTherefore, the answer is ({a}).", "✅ {a}", "{a} ✓", "- {a}", "> {a}",
    "The answer must be {a}.", "So the answer must be ({a}).", "`{a}`", "'{a}'", "{a};",
    "- **{a}.** {t}", "The answer is {a}) {t}", "The answer is {a}: {t}.",
    "The answer is \"{a}\".", "Answer: {a}.", "Answer is {a}", "answer = {a}",
    "The most likely answer is {a}.", "Final choice: {a}",
    "The letter of the correct answer is {a}.", "Selected option: {a}", "#### {a}",
    "The answer is:\n\n{a}", "The correct answer is:\n\n**{a}) {t}**",
    "The best option is {a}. {t}", "Solution: {a}", "[[{a}]]", "{{\"answer\": \"{a}\"}}",
    "Option {a} is the best choice.", "Ans: {a}", "Thus, option {a} is correct.",
    "So, {a} is the answer.", "Therefore, {a}.", "Hence, ({a}).", "So {a}.",
)  # fmt: skip
NONE = (
    "{b}", "({b})", "{b}. {t}", "The answer is {b}.", r"\boxed{{{b}}}", "<answer>{b}</answer>",
    "Answer: {b}", "Option {b}", "{b}\n\nExplanation: it follows.",
    "{b} because {a} is too small.", "{b}, since {a} is wrong", "**{b}**", "{b}: {a}",
    "The correct answer is ({b}) {t}.", "{a} or {b}", "{a}, {b}", "{a}/{b}", "{a} and {b}",
    "({a}) ({b})", "{a}{b}", "{a} {b}", "ABCD", "A B C D", "{a}. {b}", "{a}; {b}", "{a}\n{b}",
    "{b}\n{a}", "{a}.\n{b}.", "{a} & {b}", "Both {a} and {b}", "Either {a} or {b}",
    "Neither {a} nor {b}", "{a} or maybe {b}", "{a}. or {b}", "Options {a} and {b}",
    "The answer is {a} or {b}.", "The answer is {a} and {b}.", "The answer is {a}, {b}.",
    "The answer is either {a} or {b}", "Answer: {a}, {b}", "Answer: {a}/{b}",
    r"\boxed{{{a}, {b}}}", r"\boxed{{{a}}} or \boxed{{{b}}}", r"\boxed{{{a} \text{{ or }} {b}}}",
    "<answer>{a}</answer><answer>{b}</answer>", "<answer>{a} or {b}</answer>",
    "<answer>{a}, {b}</answer>", "not {a}", "The answer is not {a}.", "{a} is wrong.",
    "{a} is incorrect.", "{a} is not correct.", "Not {a}", "{a} is not the answer.",
    "anything but {a}", "{a}? No, {b}", "{a}... wait, {b}", "{a}, no, {b}.",
    "{a}\n\nActually, {b}", "{a}, but {b} is better",
    "Option {a} is correct. Option {b} is correct.", "Option {a} is correct. So is {b}.",
    "The answer is {a}. The answer is {b}.", "The answer is {a}, no wait, {b}.", "Is it {a}?",
    "{a}?", "Maybe {a}", "{a} can't be the answer", "all of {a}", "{a}12", "{a}{a}", "",
    "I do not know.", "The answer is unknown.", "None of the above", "All of the above", "{t}",
    "<think>{a}", "<think>The answer is {a}.", "The options are {a}, {b}.", "Anyone",
    "{a}) {t} {b}) {t}", "{a}: is wrong", "{a} since it is so\nThe answer is {b}",
    "<answer>{a}\n{b}</answer>", "The correct option is {b}, not {a}.",
    "{b} is correct, {a} is not.", "It is not {a} but {b}.", "**{a}** **{b}**", "{a} = {b}",
    "{a} > {b}", "Because {a} is {b}", "[{a}] [{b}]", "{a}|{b}", "1", "{a}1", "Answer: not {a}",
    "The answer cannot be {a}.", "I would rule out {a}.",
)  # fmt: skip
TEXTS = (
    "Paris", "the mitochondrion", "12 cm", "Vitamin C", "increase both", "Both of them",
    "Plan A works", "x + 1", "True", "A cell wall", "It is not known", "None of them",
)  # fmt: skip


def rows(r: Random) -> Iterator[Row]:
    """Every form twice, with other letters and texts."""
    for forms, right in ((ONE, True), (NONE, False)):
        for form in forms:
            for _ in range(2):
                a, b = r.sample("ABCD", 2)
                # "Plan A" beside another letter is its text; "{t}" alone may be no letter's.
                text = r.choice(TEXTS if right else TEXTS[:3])
                reply = form.format(a=a, b=b, t=text, l=a.lower())
                yield Row("choice", "one letter" if right else "none or several", reply, a, right)
