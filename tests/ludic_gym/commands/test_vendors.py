"""Parameters that servers refuse, and names of models: a server imitates five vendors."""

import json

import pytest
from chat_server import MODELS, answering, chat_server, completion

from ludic_gym.commands.main import main

SUMS = "ludic/Arithmetic-v0"


def bench(capsys, *arguments):
    code = main(["bench", SUMS, "--episodes", "1", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def openai(field):
    if field == "max_tokens":
        text = "'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
        return 400, {"error": {"message": f"Unsupported parameter: {text}", "param": field}}
    text = f"Unsupported value: '{field}' does not support 1.0 with this model."
    return 400, {"error": {"message": text, "param": field, "code": "unsupported_value"}}


def mistral(field):
    detail = {"type": "extra_forbidden", "loc": ["body", field], "msg": "Extra inputs are not ok"}
    return 422, {"object": "error", "message": {"detail": [detail]}}


def gemini(field):
    text = f'Invalid JSON payload received. Unknown name "{field}": Cannot find field.'
    return 400, [{"error": {"code": 400, "message": text, "status": "INVALID_ARGUMENT"}}]


def claude(field):
    text = "`temperature` and `top_p` cannot both be specified for this model. Use only one."
    return 400, {"error": {"message": text, "type": "invalid_request_error"}}


def groq(field):
    text = f"property '{field}' is unsupported, did you mean 'service_tier'?"
    return 400, {"error": {"message": text, "type": "invalid_request_error"}}


def refusing(fields, refusal):
    """A server that takes none of the fields, and names the first one that it finds."""

    def respond(path, headers, body):
        if body is None:
            return 200, MODELS
        found = [field for field in fields if field in body]
        return refusal(found[0]) if found else (200, completion("5"))

    return respond


@pytest.mark.parametrize(
    ("refusal", "fields", "added"),
    [
        (openai, ["max_tokens", "temperature", "top_p"], {"max_completion_tokens": 256}),
        (mistral, ["seed"], {}),
        (gemini, ["seed"], {}),
        (claude, ["top_p"], {}),
        (groq, ["top_p", "seed"], {}),
    ],
)
def test_refused_parameters_are_learnt_before_the_run_and_said_once(
    capsys, tmp_path, refusal, fields, added
):
    with chat_server(refusing(fields, refusal)) as server:
        options = ["--policy", server.url, "--model", "small", "--out", str(tmp_path)]
        code, _, said = bench(capsys, *options)
        bodies = server.requests
    assert code == 0
    # One request per refusal, the one that succeeds, and the episode's.
    assert len(bodies) == len(fields) + 2
    assert not set(fields) & set(bodies[-1])
    assert added.items() <= bodies[-1].items()
    assert [said.count(f"the server refuses {field!r}") for field in fields] == [1] * len(fields)
    renamed = json.loads((tmp_path / "bench.json").read_text())["renamed"]
    assert sorted(renamed) == sorted(fields)


def test_a_refused_parameter_that_was_chosen_is_not_left_out_in_silence(capsys):
    with chat_server(refusing(["temperature"], openai)) as server:
        options = ["--policy", server.url, "--model", "small", "--temperature", "0.5"]
        code, _, error = bench(capsys, *options)
        assert (code, len(server.requests)) == (2, 1)
        assert "takes no temperature=0.5; leave it out, with --param temperature=none" in error
        assert bench(capsys, *options, "--param", "temperature=none")[0] == 0
        assert "temperature" not in server.requests[-1]


def test_parameters_can_be_left_out_renamed_and_added(capsys, tmp_path):
    given = ["--param", "max_tokens=none", "--param", "max_completion_tokens=512"]
    given += ["--extra-body", '{"reasoning": {"effort": "low"}}']
    with chat_server(answering()) as server:
        options = ["--policy", server.url, "--model", "small", "--out", str(tmp_path)]
        assert bench(capsys, *options, *given)[0] == 0
        body = server.requests[-1]
        code, _, error = bench(capsys, *options)
    assert "max_tokens" not in body
    assert (body["max_completion_tokens"], body["reasoning"]) == (512, {"effort": "low"})
    # They determine the episodes, so that another run may not continue with others.
    assert code == 2
    assert "param: ['max_tokens=none', 'max_completion_tokens=512'], now []" in error


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--policy", "oracle", "--param", "top_p=none"], "'oracle' sends no requests"),
        (["--policy", "http://x", "--extra-body", "[1]"], "--extra-body is a JSON object"),
        (["--policy", "http://x", "--extra-body", "{"], "--extra-body is no JSON"),
        (["--policy", "http://x", "--param", "top_p"], "not of the form key=value"),
    ],
)
def test_fields_that_cannot_be_sent_are_refused(capsys, words, complaint):
    code, _, error = bench(capsys, *words)
    assert (code, complaint in error) == (2, True)


@pytest.mark.parametrize(
    ("provider", "key"),
    [
        ("openai", "OPENAI_API_KEY"),
        ("google", "GEMINI_API_KEY"),
        ("openrouter", "OPENROUTER_API_KEY"),
        ("vllm", "VLLM_API_KEY"),
        ("ollama", "OLLAMA_API_KEY"),
    ],
)
def test_a_model_of_a_provider_is_named_in_one_word(capsys, monkeypatch, tmp_path, provider, key):
    def respond(path, headers, body):
        sent.append((path, headers.get("Authorization"), body["model"]))
        return 200, completion("5", "served")

    sent = []
    with chat_server(respond) as server:
        # Taken literally: the path of the address is the server's own.
        monkeypatch.setenv(f"{provider.upper()}_BASE_URL", server.url.replace("/v1", "/api/v9"))
        monkeypatch.setenv(key, "secret")
        code, screen, _ = bench(capsys, "--model", f"{provider}/org/name-1", "--out", str(tmp_path))
    assert code == 0
    assert set(sent) == {("/api/v9/chat/completions", "Bearer secret", "org/name-1")}
    assert f"policy: {provider}/org/name-1" in screen
    assert f"{SUMS}: model served" in screen
    record = json.loads((tmp_path / "ludic-Arithmetic-v0.jsonl").read_text())
    assert record["policy"] == f"{provider}/org/name-1"


def anthropic(refuse=lambda body: "", seen=None):
    """A server with Anthropic's format. refuse: its reason to refuse a body, or ""."""

    def respond(path, headers, body):
        if body is None:
            return 200, {"data": [{"id": "claude-1"}]}
        if seen is not None:
            seen.append((path, headers["x-api-key"], headers["anthropic-version"]))
        if refuse(body):
            error = {"type": "invalid_request_error", "message": refuse(body)}
            return 400, {"type": "error", "error": error}
        usage = {"input_tokens": 7, "output_tokens": 3}
        content = [{"type": "text", "text": "5"}]
        reply = {"model": "claude-1-2026", "content": content, "stop_reason": "end_turn"}
        return 200, {**reply, "usage": usage}

    return respond


def anthropic_bench(capsys, monkeypatch, server, *options):
    # As for Anthropic's own package, the address has no version.
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url.removesuffix("/v1"))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    return bench(capsys, "--model", "anthropic/claude-1", *options)


def test_anthropic_is_spoken_to_in_its_own_format(capsys, monkeypatch, tmp_path):
    seen = []
    with chat_server(anthropic(seen=seen)) as server:
        code, screen, _ = anthropic_bench(capsys, monkeypatch, server, "--out", str(tmp_path))
    assert code == 0
    assert set(seen) == {("/v1/messages", "secret", "2023-06-01")}
    assert "policy: anthropic/claude-1" in screen
    assert f"{SUMS}: model claude-1-2026" in screen
    record = json.loads((tmp_path / "ludic-Arithmetic-v0.jsonl").read_text())
    assert (record["score"]["prompt_tokens"], record["score"]["completion_tokens"]) == (7, 3)


def test_models_of_anthropic_without_sampling_parameters_are_learnt(capsys, monkeypatch):
    def refuse(body):
        found = [name for name in ("temperature", "top_p") if name in body]
        return f"`{found[0]}` is deprecated for this model." if found else ""

    with chat_server(anthropic(refuse)) as server:
        code, _, said = anthropic_bench(capsys, monkeypatch, server)
        assert (code, len(server.requests)) == (0, 4)
        assert "the server refuses 'temperature': it is left out" in said
        code, _, error = anthropic_bench(capsys, monkeypatch, server, "--temperature", "0")
    assert code == 2
    assert "the model takes no temperature=0.0; leave it out" in error


def test_a_thinking_model_is_probed_with_room_for_its_thought(capsys, monkeypatch):
    def refuse(body):
        short = body["max_tokens"] <= body["thinking"]["budget_tokens"]
        return "`max_tokens` must be greater than `thinking.budget_tokens`." if short else ""

    thinking = '{"thinking": {"type": "enabled", "budget_tokens": 1024}}'
    with chat_server(anthropic(refuse)) as server:
        options = ["--extra-body", thinking, "--max-tokens"]
        assert anthropic_bench(capsys, monkeypatch, server, *options, "2048")[0] == 0
        # Without room in the run itself, the refusal stands.
        code, _, error = anthropic_bench(capsys, monkeypatch, server, *options, "1024")
    assert code == 2
    assert "must be greater than `thinking.budget_tokens`" in error
