"""Write the mutations of RepoRepair, and the hidden cases that each bug makes fail.

python benchmarks/repair_mutations.py

A mutation is kept if the package still imports and at least two hidden cases fail, so that an issue
can show one of them and a program that only prints that result is still wrong.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from dataclasses import dataclass

from ludic_gym.envs.worlds.repair.judge import failures
from ludic_gym.envs.worlds.repair.packages import (
    MUTATIONS,
    Package,
    bug_blocks,
    package,
    package_names,
    whole_lines,
)
from ludic_gym.sandbox.choice import shared_sandbox
from ludic_gym.sandbox.loop import run_blocking
from ludic_gym.sandbox.types import ExecResult, Program

SHOWN = 3
# Of one kind in one file, so that no kind outnumbers the others.
MOST_OF_A_KIND = 3
LONGEST_RESULT = 300
COMPARISONS = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"),
}  # fmt: skip
OPERATORS = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "+"), ast.Div: ("/", "//"),
    ast.FloorDiv: ("//", "/"), ast.Mod: ("%", "//"), ast.BitOr: ("|", "&"),
}  # fmt: skip
WORDS = {"min": "max", "max": "min", "any": "all", "all": "any", "ljust": "rjust",
         "rjust": "ljust", "lower": "upper", "partition": "rpartition",
         "rpartition": "partition", "find": "rfind", "sorted": "list"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Edit:
    """A replacement of the characters from `start` to `stop` of a file."""

    kind: str
    start: int
    stop: int
    text: str


class Source:
    """A parsed file, and the positions of its nodes."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self._lines = [0]
        for line in text.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def at(self, line: int, column: int) -> int:
        """The index of a position of `ast`, whose columns are bytes."""
        start = self._lines[line - 1]
        text = self.text[start : self._lines[line]].encode()
        return start + len(text[:column].decode())

    def span(self, node: ast.AST) -> tuple[int, int]:
        """The indices of a node."""
        assert isinstance(node, ast.expr | ast.stmt)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self.at(node.lineno, node.col_offset)
        return start, self.at(node.end_lineno, node.end_col_offset)

    def between(
        self, kind: str, left: ast.AST, right: ast.AST, pair: tuple[str, str]
    ) -> list[Edit]:
        """The edit that replaces an operator."""
        begin, end = self.span(left)[1], self.span(right)[0]
        at = self.text.find(pair[0], begin, end)
        return [Edit(kind, at, at + len(pair[0]), pair[1])] if at >= 0 else []


def edits(source: Source) -> Iterator[Edit]:
    """All mutations of a file."""
    for node in ast.walk(source.tree):
        yield from _of_expression(source, node)
        yield from _of_statement(source, node)


def _of_expression(source: Source, node: ast.AST) -> Iterator[Edit]:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            yield from source.between("comparison", left, right, COMPARISONS[type(op)])
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            yield from source.between("operator", left, right, OPERATORS[type(op)])
        case ast.BoolOp(op=op, values=[left, right, *_]):
            pair = ("and", "or") if isinstance(op, ast.And) else ("or", "and")
            yield from source.between("operator", left, right, pair)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield Edit("negation", source.span(node)[0], source.span(operand)[0], "")
        case ast.Constant(value=bool() as value):
            yield Edit("constant", *source.span(node), str(not value))
        case ast.Constant(value=int() as value):
            yield Edit("constant", *source.span(node), str(value + 1))
            if value > 0:
                yield Edit("constant", *source.span(node), str(value - 1))
        case ast.Call(args=[first, second, *_]):
            (a, b), (c, d) = source.span(first), source.span(second)
            text = source.text
            yield Edit("arguments", a, d, text[c:d] + text[b:c] + text[a:b])
    match node:
        case ast.Call(func=ast.Name(id=name)) if name in WORDS:
            yield Edit("function", *source.span(node.func), WORDS[name])
        case ast.Call(func=ast.Attribute(attr=name)) if name in WORDS:
            end = source.span(node.func)[1]
            yield Edit("function", end - len(name), end, WORDS[name])


def _of_statement(source: Source, node: ast.AST) -> Iterator[Edit]:
    for field in ("body", "orelse"):
        block = getattr(node, field, None)
        if not isinstance(block, list) or not block:
            continue
        for one, following in zip(block, [*block[1:], None], strict=True):
            start, stop = source.span(one)
            line = source.text.rfind("\n", 0, start) + 1
            end = source.text.find("\n", stop) + 1
            if len(block) > 1 and isinstance(one, ast.If) and not one.orelse:
                yield Edit("missing branch", line, end, "")
            if len(block) > 1 and isinstance(one, ast.AugAssign):
                yield Edit("missing statement", line, end, "")
            call = isinstance(one, ast.Expr) and isinstance(one.value, ast.Call)
            if len(block) > 1 and call:
                yield Edit("missing statement", line, end, "")
            if isinstance(one, ast.For) and isinstance(following, ast.Return):
                # The return is moved into the loop, which then ends after its first round.
                last = source.span(following)[1]
                moved = source.text[line:last].rsplit("\n", 1)
                yield Edit("early return", line, last, f"{moved[0]}\n    {moved[1]}")


def blocks_of(name: str) -> Iterator[dict[str, object]]:
    """The mutations of a package that are kept."""
    original = package(name)
    seen = {
        (block["path"], original.files[block["path"]].replace(block["old"], block["new"]))
        for block in bug_blocks(name)
    }
    for path, text in original.files.items():
        if path.startswith("tests/") or path.endswith("__init__.py"):
            continue
        counts: dict[str, int] = {}
        for edit in edits(Source(text)):
            if counts.get(edit.kind, 0) >= MOST_OF_A_KIND:
                continue
            changed = text[: edit.start] + edit.text + text[edit.stop :]
            # Two mutations may be the same, such as the last branch that is missing.
            if (path, changed) in seen:
                continue
            seen.add((path, changed))
            if block := kept(original, path, changed):
                counts[edit.kind] = counts.get(edit.kind, 0) + 1
                yield {"package": name, "path": path, "kind": edit.kind, **block}


def kept(original: Package, path: str, changed: str) -> dict[str, object] | None:
    """The edit of a mutation and its failing cases; None if it is not kept."""
    try:
        ast.parse(changed)
    except SyntaxError:
        return None
    failed = failures(run, original, {**original.files, path: changed})
    # A package that does not import fails in all cases, before their statements.
    if len(failed) < 2 or all(result == "no result" for _, result in failed.values()):
        return None
    shown = [
        (case, position, result)
        for case, (position, result) in failed.items()
        # An address differs from run to run.
        if result != "no result" and len(result) < LONGEST_RESULT and " at 0x" not in result
    ]
    if not shown:
        return None
    old, new = smallest(original.files[path], changed)
    return {"old": old, "new": new, "shown": shown[:SHOWN], "fails": sorted(failed)}


def smallest(text: str, changed: str) -> tuple[str, str]:
    """The lines that differ, and as many lines around them as make them unique in the text."""
    before, after = text.splitlines(keepends=True), changed.splitlines(keepends=True)
    first = 0
    while first < min(len(before), len(after)) and before[first] == after[first]:
        first += 1
    same = 0
    while same < min(len(before), len(after)) - first and before[-1 - same] == after[-1 - same]:
        same += 1
    while True:
        old = "".join(before[first : len(before) - same])
        if old and text.count(old) == 1:
            return old, "".join(after[first : len(after) - same])
        first, same = max(0, first - 1), max(0, same - 1)


def run(program: Program) -> ExecResult:
    """The result of a program in the sandbox of this process."""
    return run_blocking(shared_sandbox("auto", allow_unsafe=False).run(program))


def reported(name: str) -> list[list[int]]:
    """The failing cases of each hand-made bug of a package. Raises SystemExit for a weak one."""
    found = []
    original = package(name)
    for block in bug_blocks(name):
        text = original.files[block["path"]]
        before, after = whole_lines(text, block["old"], block["new"])
        failed = failures(
            run, original, {**original.files, block["path"]: text.replace(before, after)}
        )
        if text.count(before) != 1 or len(failed) < 2:
            raise SystemExit(f"{name}: {block['new']!r} fails in the cases {sorted(failed)}")
        found.append(sorted(failed))
    return found


def main() -> None:
    """Write the file."""
    hand_made = {name: reported(name) for name in package_names()}
    mutations = [block for name in package_names() for block in blocks_of(name)]
    lines = ",\n".join(json.dumps(block) for block in mutations)
    MUTATIONS.write_text(
        f'{{"reported": {json.dumps(hand_made)},\n"mutations": [\n{lines}\n]}}\n', encoding="utf-8"
    )
    print(f"{len(mutations)} mutations, {sum(map(len, hand_made.values()))} hand-made bugs")


if __name__ == "__main__":
    main()
