"""Programs in replies: fenced blocks, and which of them is the program."""

import ast
import re
import textwrap
import warnings
from collections.abc import Iterator

from ludic_gym.reader import divided

PYTHON = ("python", "py", "python3")
_LONGEST_PARSED = 200_000
# A reply has more blocks only to cost time.
_MOST_PARSED = 32
_MOST_AFTER = 4
_OPENING = re.compile(r"([ \t>]*)(`{3,}|~{3,})[ \t]*\{?\.?([\w+-]*)([^`]*)$")
# A special token may follow.
_CLOSING = re.compile(r"([ \t>]*)(`{3,}|~{3,})\s*(?:<\|.*)?$")
# Around a program without a fence.
_TAG = re.compile(r"<(answer|code|python|program|solution)>|\[PYTHON\]", re.IGNORECASE)
_QUERY = re.compile(r"^(?:select|with)\b", re.IGNORECASE | re.MULTILINE)
# The first line of a program.
_CODE = re.compile(
    r"(?:import\s+\w|from\s+[\w.]+\s+import\s|(?:async\s+)?def\s+\w|class\s+\w|@\w|\w+\s*=[^=]"
    r"|for\s+[\w, ()]+\s+in\b|(?:while|with|if)\b[^\n]*:\s*$|try:|print\()"
)
# Statements that only give names, so that a block of them does nothing where it is not needed.
_NAMING = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)


def program_in(
    text: str, languages: tuple[str, ...] = PYTHON, *, defines: str = "", head: str = ""
) -> str:
    r"""The program in a reply: of several blocks the last that defines a name, else the longest.

    defines: function or class that the program is to define, such as "area" or "Solution.area".
        Imports and functions of blocks before its own are kept.
    head: the beginning of a program, up to the head of a function, which the reply may continue.
    languages: lower-case names, as they follow a fence's opening; blocks in other languages are
        read only without any of these. Python has to compile, if one of the blocks does. Without
        a name, the last program that reads its input and prints goes before a longer one.
    Text before the end of a thought (`</think>`) is ignored; a thought that is not closed has no
    program, "". A reply without blocks is the program, without sentences around it.

    >>> reply = "```py\ndef f(x): return x\n```\nSuch as:\n```py\nprint(f(2), f(3))\n```"
    >>> program_in(reply, defines="f")
    'def f(x): return x'
    >>> program_in("    return x + 1\n\nprint(f(2))", defines="f", head="def f(x):\n")
    'def f(x):\n    return x + 1'
    """
    blocks = blocks_in(text, languages)
    if "python" not in languages:
        # Of equally long ones the last: models mend what they wrote first.
        return max(reversed(blocks), key=len, default="")
    names = "|".join(map(re.escape, filter(None, defines.split("."))))
    defining = re.compile(rf"^(?:async\s+def|def|class)\s+(?:{names})\b|^(?:{names})\s*=", re.M)
    fitting = [code for code in blocks if defines and defining.search(code)]
    if not fitting and head:
        for block in reversed(blocks[-_MOST_PARSED:]):
            if continued := _continued(head, block):
                return continued
    if not is_fenced(text):
        return _unfenced(blocks[0])
    chosen = fitting or blocks
    if len(chosen) > 1:
        chosen = [code for code in chosen[-_MOST_PARSED:] if compiles(code)] or chosen
    if fitting:
        before = blocks[: blocks.index(chosen[-1])][-_MOST_PARSED:]
        needed = [code for code in before if not defining.search(code) and _only_names(code)]
        return "\n\n".join([*needed, chosen[-1]])
    if whole := [code for code in chosen if _reads_and_prints(code)] if not defines else []:
        return whole[-1]
    return max(reversed(chosen), key=len, default="")


def blocks_in(text: str, languages: tuple[str, ...]) -> list[str]:
    """The fenced blocks of a reply in one of the languages, in order.

    Without any: those that name no language, else all of them, else the whole reply. A block
    without its closing fence ends with the text. The indent of its fence is taken from its lines.
    """
    reply = _reply(text)
    blocks = list(_fenced(reply))
    fitting = [code for language, code in blocks if language in languages]
    untagged = [code for language, code in blocks if not language]
    if blocks:
        return fitting or untagged or [code for _, code in blocks]
    if "sql" in languages and (query := _QUERY.search(reply)):
        text = reply[query.start() :]
        whole, _, rest = text.rpartition(";")
        # Sentences after it, but no second query.
        return [whole if whole and rest[:1] == "\n" and not _QUERY.search(rest) else text]
    return [reply]


def is_fenced(text: str) -> bool:
    r"""True if there is a fenced block after the thought.

    >>> is_fenced("```python\nx = 1"), is_fenced("x = 1")
    (True, False)
    """
    return next(_fenced(_reply(text)), None) is not None


def compiles(code: str) -> bool:
    """True if Python parses the code. A text too long to be worth it counts as such."""
    return len(code) > _LONGEST_PARSED or _tree(code) is not None


def _reply(text: str) -> str:
    """The reply after its thought, with the line ends of Unix; "" for one that is not closed."""
    thought, reply = divided(text)
    # Blanks at the beginning may be the indent of a body.
    return "" if "<think>" in reply and not thought else reply.replace("\r\n", "\n").strip("\n")


def _fenced(reply: str) -> Iterator[tuple[str, str]]:
    """(language, code) of each fenced block."""
    opened: re.Match[str] | None = None
    lines: list[str] = []
    for line in reply.split("\n"):
        if opened is None:
            # Most lines are no fence.
            opened = _OPENING.match(line) if "```" in line or "~~~" in line else None
            lines = []
        elif _closes(line, opened):
            yield _block(opened, lines)
            opened = None
        else:
            lines.append(line)
    if opened:
        # Without a line of its own for the closing fence, or cut off before it.
        last = lines[-1].rstrip() if lines else ""
        yield _block(opened, [*lines[:-1], last.removesuffix(opened[2])])


def _closes(line: str, opened: re.Match[str]) -> bool:
    """True for the fence that ends the block; one in a text of the program is indented more."""
    found = _CLOSING.match(line) if opened[2] in line else None
    return found is not None and len(found[1]) <= len(opened[1]) + 3


def _block(opened: re.Match[str], lines: list[str]) -> tuple[str, str]:
    """The language, without a version of Python, and the code without the indent of its fence."""
    indent = opened[1]
    code = "\n".join(line.removeprefix(indent) for line in lines)
    return re.sub(r"^(py|python)[\d.]*$", r"\1", opened[3].lower()), code.strip("\n")


def _unfenced(reply: str) -> str:
    """The program of a reply without a fence: in a tag, or between sentences."""
    # Before the tags, which may stand in its texts.
    if compiles(reply):
        return reply
    if tag := _TAG.search(reply):
        closing = "[/PYTHON]" if tag[0].startswith("[") else f"</{tag[1]}>"
        reply = reply[tag.end() :].partition(closing)[0].strip("\n")
    lines = reply.split("\n")
    first = next((i for i, line in enumerate(lines) if _CODE.match(line)), 0)
    parts = "\n".join(lines[first:]).split("\n\n")
    # Sentences after it are paragraphs of their own.
    for end in range(len(parts), max(len(parts) - _MOST_AFTER, 0), -1):
        if compiles(code := "\n\n".join(parts[:end]).strip("\n")):
            return code
    return reply


def _continued(head: str, body: str) -> str:
    """The program that begins with the head and goes on with a body, or "" if it does not compile.

    The body ends before the first line that is not indented: base models write on.
    """
    if not body.strip():
        return ""
    if not body[:1].isspace():
        # Without an indent, or one that was stripped from the first line.
        return _continued(head, textwrap.indent(body, "    ")) or _continued(head, f"    {body}")
    lines = body.split("\n")
    end = next((i for i, line in enumerate(lines) if line[:1] not in ("", " ", "\t")), len(lines))
    program = head.rstrip() + "\n" + "\n".join(lines[:end]).rstrip()
    return program if compiles(program) else ""


def _tree(code: str) -> ast.Module | None:
    """The syntax tree, or None for what is not Python."""
    try:
        with warnings.catch_warnings():
            # Such as an invalid escape in a string, which is the model's own.
            warnings.simplefilter("ignore")
            return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _only_names(code: str) -> bool:
    """True for imports, functions and classes alone, with constants among them."""
    tree = _tree(code) if len(code) <= _LONGEST_PARSED else None
    return tree is not None and all(
        isinstance(node, _NAMING)
        or (isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant))
        for node in tree.body
    )


def _reads_and_prints(code: str) -> bool:
    """True for a program that reads its input and writes a result."""
    reads = "input(" in code or "stdin" in code or "open(0" in code
    return reads and ("print(" in code or "stdout" in code)
