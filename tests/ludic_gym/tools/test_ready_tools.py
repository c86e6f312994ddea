"""Tools for search, files, programs and servers."""

from __future__ import annotations

import asyncio
import json
import math
import random
import sys
from collections import Counter

import pytest

from ludic_gym.errors import ConfigError, NoSandbox
from ludic_gym.tools.files import SimulatedFiles
from ludic_gym.tools.interpreters import calculator_tool, python_tool
from ludic_gym.tools.mcp_client import mcp_tools
from ludic_gym.tools.search import Document, Index, search_tools
from ludic_gym.tools.tool import call_tool
from ludic_gym.types import ToolCall

TEXTS = ["red fox", "blue fox fox", "owl", "cat", "dog", "hen", "cow", "pig"]


def plain_scores(texts, query, k1=1.5, b=0.75):
    """Lucene's variant of the formula, text by text."""
    counts = [Counter(text.split()) for text in texts]
    mean = sum(c.total() for c in counts) / len(texts)
    scores = []
    for count in counts:
        score = 0.0
        for word in query.split():
            holders = sum(word in other for other in counts)
            idf = math.log(1 + (len(texts) - holders + 0.5) / (holders + 0.5))
            norm = k1 * (1 - b + b * count.total() / mean)
            score += idf * count[word] / (count[word] + norm)
        scores.append(score)
    return scores


def test_equal_scores_keep_the_order_and_unknown_words_find_nothing():
    assert Index(TEXTS).best("pig cat owl", 2) == [2, 3]
    assert Index(TEXTS).best("zebra", 2) == Index(TEXTS).best("", 2) == []
    assert Index(["the", "of", ""]).best("the fox", 2) == []


def test_the_order_is_that_of_a_plain_implementation():
    rng = random.Random(0)
    letters = [letter * 2 for letter in "abcdefghijklmnopqrstuvwxyz"]
    texts = [" ".join(rng.choices(letters, k=rng.randint(1, 9))) for _ in range(60)]
    index = Index(texts)
    for _ in range(50):
        query = " ".join(rng.sample(letters, 3))
        scores = plain_scores(texts, query)
        found = index.best(query, 10)
        assert len(found) == min(10, sum(score > 0 for score in scores))
        best = sorted(scores, reverse=True)[: len(found)]
        assert [scores[i] for i in found] == pytest.approx(best)


async def use(tools, name, /, **arguments):
    call = ToolCall(id="c", name=name, arguments=json.dumps(arguments))
    return await call_tool({tool.name: tool for tool in tools}, call)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("(3 + 4) ** 2 / 7", "7.0"),
        ("123456789 * 987654321", "121932631112635269"),
        ("math.sqrt(2)", "1.4142135623730951"),
        ("2 ** 200 % 1000007", str(pow(2, 200, 1000007))),
        ("1 / 0", "Error: ZeroDivisionError: division by zero"),
        ("1 +", "Error: "),
        ("open('/etc/passwd').read()", "Error: "),
        ("__import__('os').system('id')", "Error: "),
        ("9 ** 9 ** 9 ** 9", "Error: "),
        ("[0] * 10 ** 10", "Error: "),
    ],
)
async def test_a_calculator_works_out_expressions_and_nothing_else(expression, value):
    said = await use([calculator_tool()], "calculator", expression=expression)
    assert said.startswith(value)


@pytest.fixture
def python():
    try:
        return python_tool()
    except NoSandbox as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("print(6 * 7)", "42\n"),
        ("x = 6", "(nothing was printed)"),
        ("print('a')\nraise SystemExit(3)", "a\n\nError: exit code 3"),
        ("import urllib.request as u\nu.urlopen('http://127.0.0.1:9')", "Traceback"),
    ],
)
async def test_python_programs_run_in_a_sandbox(python, code, said):
    assert (await use([python], "python", code=code)).startswith(said)


async def test_python_programs_keep_nothing(python):
    await use([python], "python", code="open('x', 'w').write('1')")
    assert "FileNotFoundError" in await use([python], "python", code="open('x')")


DOCUMENTS = (
    Document("Marlow", "Marlow is a port at the mouth of the river Ash."),
    Document("Ash", "The river Ash rises in the Greel hills."),
    Document("Tova Brandt", "Tova Brandt founded the glassworks of Marlow in 1872."),
)


@pytest.fixture
def search():
    return search_tools(DOCUMENTS)


async def test_a_search_finds_documents_by_their_words_and_reads_them(search):
    found = await use(search, "search", query="who founded the glassworks", limit=1)
    assert found == "Tova Brandt: Tova Brandt founded the glassworks of Marlow in 1872."
    assert len((await use(search, "search", query="river")).splitlines()) == 2
    assert (await use(search, "read", title="Ash")).endswith("Greel hills.")


@pytest.mark.parametrize("query", ["", "the of", "volcano", "😀"])
async def test_a_search_for_what_no_document_has_says_so(search, query):
    assert await use(search, "search", query=query) == f"no document matches {query!r}"


async def test_files_are_written_read_moved_found_and_removed():
    files = SimulatedFiles({"notes/a.txt": "one\ntwo"})
    tools = files.tools()
    assert await use(tools, "list_files") == "/notes/a.txt"
    assert await use(tools, "write_file", path="/notes/b.txt", text="two") == (
        "wrote 3 characters to /notes/b.txt"
    )
    await use(tools, "write_file", path="notes/../notes/b.txt", text="\nthree", append=True)
    assert await use(tools, "read_file", path="/notes/b.txt") == "two\nthree"
    assert await use(tools, "find_text", text="two") == "/notes/a.txt:2: two\n/notes/b.txt:1: two"
    await use(tools, "move_file", path="/notes/a.txt", to="/old/a.txt")
    await use(tools, "remove_file", path="/notes/b.txt")
    assert files.contents == {"/old/a.txt": "one\ntwo"}


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("read_file", {"path": "/etc/passwd"}, "FileNotFoundError: there is no file /etc/passwd"),
        ("read_file", {"path": "../../a"}, "FileNotFoundError: there is no file /a"),
        ("write_file", {"path": "/d", "text": ""}, "IsADirectoryError: /d is a folder"),
        ("write_file", {"path": "/", "text": ""}, "IsADirectoryError: / is a folder"),
        ("write_file", {"path": "/e", "text": "x" * 100_001}, "OSError: no space"),
        ("write_file", {"path": "/d/f/x", "text": ""}, "NotADirectoryError: /d/f is a file"),
        ("move_file", {"path": "/d/f", "to": "/d/g"}, "FileExistsError: /d/g exists"),
        ("move_file", {"path": "/d/f", "to": "/d"}, "IsADirectoryError: /d is a folder"),
        ("move_file", {"path": "/d/f", "to": "/"}, "IsADirectoryError: / is a folder"),
        ("move_file", {"path": "/d/f", "to": "/d/g/h"}, "NotADirectoryError: /d/g is a file"),
    ],
)
async def test_what_cannot_be_done_with_files_is_told(name, arguments, error):
    files = SimulatedFiles({"/d/f": "", "/d/g": ""})
    assert (await use(files.tools(), name, **arguments)).startswith(f"Error: {error}")
    assert files.contents == {"/d/f": "", "/d/g": ""}


SERVER = '''
import os, sys, time
from mcp.server import MCPServer

server = MCPServer("test")

@server.tool()
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b

@server.tool()
def fails(why: str) -> str:
    raise ValueError(why)

@server.tool()
def sleeps() -> str:
    time.sleep(30)
    return "late"

@server.tool()
def variable(name: str) -> str:
    return os.environ.get(name, "not set")

@server.tool()
def long() -> str:
    return "x" * 100000

server.run("stdio")
'''


@pytest.fixture
def server(tmp_path):
    pytest.importorskip("mcp", reason="MCP servers need the extra mcp")
    path = tmp_path / "server.py"
    path.write_text(SERVER)
    return (sys.executable, str(path))


@pytest.mark.long
async def test_the_tools_of_an_mcp_server_are_called_like_any_other(server, monkeypatch):
    monkeypatch.setenv("A_SECRET", "s")
    async with mcp_tools(server, environment={"SHOWN": "yes"}, output_limit=900) as tools:
        add = {tool.name: tool for tool in tools}["add"]
        assert add.schema["function"]["description"] == "Add two numbers."
        assert add.schema["function"]["parameters"]["required"] == ["a"]
        assert await use(tools, "add", a=2, b=3) == "5"
        assert await use(tools, "add", a="x") == "Error: 'a' should be of type integer, got 'x'"
        assert await use(tools, "variable", name="SHOWN") == "yes"
        assert await use(tools, "variable", name="A_SECRET") == "not set"
        assert await use(tools, "fails", why="x") == "Error: Error executing tool fails"
        assert len(await use(tools, "long")) < 1000
        several = await asyncio.gather(*(use(tools, "add", a=i) for i in range(8)))
        assert several == [str(i + 1) for i in range(8)]


@pytest.mark.parametrize("command", [("/no/such/program",), (sys.executable, "-c", "1"), ()])
async def test_an_mcp_server_that_does_not_start_is_refused(command):
    pytest.importorskip("mcp", reason="MCP servers need the extra mcp")
    with pytest.raises(ConfigError, match="server"):
        async with mcp_tools(command):
            pass
