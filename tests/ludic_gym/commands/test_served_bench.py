"""`ludic bench` with a model behind a server: the probe before a run, and errors during it."""

import json
import socket
import time

import pytest
from chat_server import answering, chat_server, completion, refusing

from ludic_gym.commands.main import main

# Refusals as the servers of these vendors write them: status, message, further fields, the remedy.
NO_MODEL = "the server has no model 'smal', but small and 1 more"
REFUSED = {
    "OpenAI, wrong key": (
        *(401, "Incorrect API key provided: abc. You can find your API key at ..."),
        {"type": "invalid_request_error", "param": None, "code": "invalid_api_key"},
        "no key was sent, because OPENAI_API_KEY is not set: export OPENAI_API_KEY=...",
    ),
    "OpenAI, wrong model": (
        *(404, "The model `smal` does not exist or you do not have access to it."),
        {"type": "invalid_request_error", "param": None, "code": "model_not_found"},
        NO_MODEL,
    ),
    "vLLM, wrong model": (
        *(404, "The model `smal` does not exist."),
        {"type": "NotFoundError", "param": "model", "code": 404},
        NO_MODEL,
    ),
    "vLLM, no chat template": (
        *(400, "As of transformers v4.44, default chat template is no longer allowed."),
        {"type": "BadRequestError", "param": None, "code": 400},
        "the model has no chat template: serve an instruct model, or start vLLM with "
        "--chat-template FILE",
    ),
    "Ollama, wrong model": (
        *(404, "model 'smal' not found"),
        {"type": "api_error", "param": None, "code": None},
        NO_MODEL,
    ),
}


@pytest.fixture
def bench(capsys, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    def run(url, *options, model="small", env="ludic/Arithmetic-v0"):
        code = main(["bench", env, "--policy", url, "--model", model, *options])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_run_ends_before_it_begins_in_one_line_with_the_remedy(bench, tmp_path, case):
    status, message, fields, remedy = REFUSED[case]
    with chat_server(refusing(status, {"error": {"message": message, **fields}})) as server:
        code, table, line = bench(server.url, "--out", str(tmp_path / "run"), model="smal")
        # No second try, and so no pause before one.
        assert len(server.requests) == 1
    assert (code, table) == (2, "")
    assert message in line
    assert line.endswith(f": {remedy}\n")
    assert line.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_closed_port_is_one_line_within_three_seconds(bench):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        # The first command of a process imports what it needs, which takes long on a busy machine.
        bench(url)
        start = time.monotonic()
        code, table, line = bench(url)
        assert time.monotonic() - start < 3
    assert (code, table) == (2, "")
    assert line.startswith(f"ludic: nothing can be reached at {url} (")
    assert line.endswith("): start the server, or correct the address\n")


def test_a_key_that_is_refused_is_named_by_its_variable(bench, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "wrong")
    with chat_server(refusing(403, {"error": {"message": "No."}})) as server:
        code, _, line = bench(server.url)
    assert code == 2
    assert line.endswith(": No.: set another key in OPENAI_API_KEY, or check what it may use\n")


def test_a_busy_server_is_waited_for(bench):
    left = [503, 429]

    def respond(path, headers, body):
        return (left.pop(), {"error": {"message": "busy"}}) if left else answering()("", {}, body)

    with chat_server(respond) as server:
        code, table, _ = bench(server.url, "--episodes", "1")
        assert len(server.requests) == 4
    assert code == 0
    assert "0/1" in table


def test_a_quota_that_is_used_up_ends_the_run_at_once_with_a_remedy(bench):
    def respond(path, headers, body):
        if len(server.requests) <= 4:
            return 200, completion("5")
        return 429, {"error": {"message": "You exceeded it.", "code": "insufficient_quota"}}

    with chat_server(respond) as server:
        code, screen, _ = bench(server.url, "--episodes", "90", "--concurrency", "1")
        # The probe and three episodes, the one that fails, and the next, which had begun.
        assert len(server.requests) <= 1 + 3 + 2
    assert code == 1
    assert "ludic/Arithmetic-v0: stopped at once" in " ".join(screen.split())
    assert "add credit or raise the limit at the vendor" in " ".join(screen.split())


def test_twenty_equal_errors_in_a_row_end_the_run_and_what_there_is_stays(bench, tmp_path):
    count = 0

    def respond(path, headers, body):
        nonlocal count
        count += 1
        # The probe and three episodes; then messages that differ in a request's number.
        if count <= 4:
            return 200, completion("5")
        return 400, {"error": {"message": f"out of credit, request req_{count}a"}}

    options = ["--episodes", "90", "--concurrency", "1", "--out", str(tmp_path)]
    with chat_server(respond) as server:
        code, screen, _ = bench(server.url, *options)
        assert len(server.requests) <= 1 + 3 + 20 + 2
    assert code == 1
    assert "stopped after the same error 20 times in a row" in screen
    assert "/3 " in screen
    results = json.loads((tmp_path / "results.json").read_text())["ludic/Arithmetic-v0"]
    assert (results["episodes"], len(results["errors"])) == (3, 20)
    assert "out of credit" in results["stopped"]
