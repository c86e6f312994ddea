import asyncio
import json
import re
import signal
import threading
from contextlib import ExitStack, contextmanager

import pytest
from chat_server import chat_server, completion

import ludic_gym as lg

GSM8K = "ludic/GSM8K-v0"


@contextmanager
def serving(reply):
    """A server whose model replies by `reply` to the messages of a request."""

    def respond(path, headers, body):
        if body is None:
            return 200, {"data": [{"id": "tiny"}]}
        keys.append(headers.get("Authorization"))
        return 200, completion(reply(body["messages"]), "tiny")

    keys = []
    with chat_server(respond) as server:
        server.keys = keys
        yield server


@pytest.fixture
def serve():
    with ExitStack() as stack:
        yield lambda reply: stack.enter_context(serving(reply))


@pytest.fixture
def sums(tmp_path):
    """A folder with a split "test" of twelve sums."""
    lines = [{"question": f"{i} + {i}?", "answer": f"#### {2 * i}"} for i in range(12)]
    (tmp_path / "test.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return {"data": str(tmp_path)}


def added(messages):
    return f"<answer>{sum(map(int, re.findall(r'[0-9]+', messages[-1]['content'])))}</answer>"


def test_a_served_model_is_evaluated_on_a_split(serve, sums):
    server = serve(added)
    policy = lg.model(server.url, harness=lg.Harness(parser="xml:answer"))
    result = lg.evaluate(GSM8K, policy, split="test", env_kwargs=sums)
    assert (result.episodes, result.successes, result.errors) == (12, 12, ())
    # The parser pays nothing beside the environment's 1.
    assert result.mean_reward == 1.0
    assert policy.usage.completion_tokens == 3 + 36
    assert result.model == "tiny"
    assert {body["model"] for body in server.requests} == {"tiny"}


async def test_it_works_inside_a_running_event_loop(serve, sums):
    policy = lg.model(serve(added).url, harness=lg.Harness(parser="xml:answer"))
    assert lg.evaluate(GSM8K, policy, split="test", env_kwargs=sums).successes == 12


def told_the_format(messages):
    """Forgets the tag, unless the last message names it."""
    if "Reply with <answer>" in messages[-1]["content"]:
        return added(messages[:-2])
    return "I think it is 4."


@pytest.mark.parametrize(
    ("attempts", "successes", "outcomes", "requests"),
    [(None, 0, {"illegal": 12}, 12), (2, 12, {"success": 12}, 24)],
)
def test_a_reply_without_an_answer_is_a_failure_unless_more_attempts_are_given(
    serve, sums, attempts, successes, outcomes, requests
):
    server = serve(told_the_format)
    policy = lg.model(server.url, "tiny", harness=lg.Harness(parser="xml:answer"))
    result = lg.evaluate(GSM8K, policy, split="test", env_kwargs=sums, attempts=attempts)
    assert (result.episodes, result.successes, result.outcomes) == (12, successes, outcomes)
    # One is the probe.
    assert (result.turns, len(server.requests)) == (requests, 1 + requests)


def test_prompt_context_key_and_sampling_reach_the_server(serve, monkeypatch):
    server = serve(lambda messages: "50")
    monkeypatch.setenv("MY_KEY", "secret")
    policy = lg.model(
        server.url,
        "tiny",
        harness=lg.Harness(system_prompt="Guess.", context="latest"),
        api_key_env="MY_KEY",
        extra_body={"top_k": 5},
    )
    sampling = lg.Sampling(temperature=0.5, max_tokens=9)
    game = "ludic/GuessTheNumber-v0"
    lg.evaluate(game, policy, episodes=1, env_kwargs={"turns": 3}, sampling=sampling)
    assert len(server.requests) == 1 + 3
    assert set(server.keys) == {"Bearer secret"}
    for body in server.requests[1:]:
        assert [m["role"] for m in body["messages"]] == ["system", "user"]
        assert body["messages"][0]["content"] == "Guess."
        assert (body["temperature"], body["max_tokens"], body["top_k"]) == (0.5, 9, 5)


def test_a_bar_shows_the_progress_unless_it_is_switched_off(capsys):
    lg.evaluate(GSM8K, lg.OraclePolicy, episodes=3)
    assert "3/3" in capsys.readouterr().err
    lg.evaluate(GSM8K, lg.OraclePolicy, episodes=3, progress=False)
    assert capsys.readouterr() == ("", "")


def test_a_dead_server_ends_the_evaluation_before_it_begins():
    with pytest.raises(lg.ConfigError, match="nothing can be reached at http:"):
        lg.evaluate(GSM8K, "http://127.0.0.1:9/v1", episodes=2)


def test_a_field_that_the_server_refuses_is_left_out_and_said(capsys):
    def respond(path, headers, body):
        if body is not None and "seed" in body:
            return 400, {"error": {"message": "Unknown name seed"}}
        return 200, completion("5", "tiny")

    with chat_server(respond) as server:
        result = lg.evaluate("ludic/Arithmetic-v0", lg.model(server.url, "tiny"), episodes=3)
    assert (result.episodes, result.model) == (3, "tiny")
    assert capsys.readouterr().err.count("the server refuses 'seed': it is left out") == 1


@pytest.mark.parametrize("name", ["oracle", "random", "easy"])
async def test_what_is_behind_no_server_has_no_usage(name):
    async with lg.model(name) as model:
        assert (model.client, model.usage) == (None, None)


@pytest.mark.parametrize(
    ("name", "spelling"), [("gpt-9", "openai/gpt-9"), ("org/tiny", "openrouter/org/tiny")]
)
def test_a_name_without_a_vendor_is_refused_with_two_spellings_that_work(name, spelling):
    with pytest.raises(lg.ConfigError) as caught:
        lg.evaluate(GSM8K, name)
    assert f"write {spelling} (or another vendor before it)" in str(caught.value)
    assert f"--policy http://HOST:PORT/v1 --model {name}" in str(caught.value)


def test_a_name_of_a_model_is_for_an_address_alone():
    with pytest.raises(lg.ConfigError, match="'tiny' is a name for a server's address"):
        lg.model("openai/gpt-9", "tiny")


def test_the_policy_of_a_model_is_copied_for_each_episode():
    def reply(messages, sampling):
        assert len([m for m in messages if m["role"] == "user"]) == 1, "an earlier episode's dialog"
        return "<answer>7</answer>"

    policy = lg.Parsed(lg.ChatPolicy(lg.ScriptedClient(reply)), lg.xml_tag_parser("answer"))
    result = lg.evaluate("ludic/Arithmetic-v0", policy, episodes=20, progress=False)
    assert (result.episodes, result.errors) == (20, ())


def test_a_policy_of_one_episode_is_refused():
    with pytest.raises(lg.ConfigError, match="policy is a ScriptedPolicy, which plays one episode"):
        lg.evaluate(GSM8K, lg.ScriptedPolicy(["4"]))


class Waits(lg.PolicyWrapper):
    """Waits for ever, and notes that it was cancelled."""

    began, cancelled = threading.Event(), threading.Event()

    async def act(self, sampling):
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()


def test_an_interrupt_cancels_the_episodes_in_flight():
    def interrupt():
        Waits.began.wait(60)
        # Python drops a KeyboardInterrupt that is raised in a callback of the garbage collector,
        # and libraries register some; whoever waits presses Ctrl-C again.
        for _ in range(10):
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            if Waits.cancelled.wait(20):
                break

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=interrupt).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            lg.evaluate(GSM8K, lambda env: Waits(lg.OraclePolicy(env)), episodes=1)
    finally:
        signal.signal(signal.SIGINT, before)
    assert Waits.cancelled.wait(10)
