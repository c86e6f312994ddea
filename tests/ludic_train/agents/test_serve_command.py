"""`ludic serve --engine local` as a process, and the options of `ludic serve`."""

import asyncio
import json
import signal
import socket
import subprocess
from contextlib import aclosing, contextmanager
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import forked
import pytest
from chat_server import chat_server, completion
from local_server import GENERATE, tokenizer

from ludic_gym.commands.main import main
from ludic_gym.harness import Harness, write_harness
from ludic_gym.records import read_rollouts
from ludic_train.cluster.publish.control import ControlClient
from ludic_train.models.checkpoint_names import checkpoint_params
from ludic_train.models.load import load_model, save_model
from ludic_train.models.tiny import make_tiny_model
from ludic_train.server_tokens import KEY_VARIABLE, issued_token, token_of

LONG = {"token_ids": [5], "sampling_params": {"max_tokens": 250, "temperature": 90.0}}


@pytest.fixture(autouse=True)
def runtime_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


@pytest.fixture
def folder(tmp_path):
    save_model(make_tiny_model(tokenizer(), max_positions=256), tokenizer(), tmp_path / "model")
    return tmp_path / "model"


@contextmanager
def ludic_serve(folder, *words):
    """The process, its address, and the rest of the line that says so."""
    command = ["-m", "ludic_gym", "serve", str(folder), "--port", "0", *words]
    child = forked.Python(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        line = child.stdout.readline()
        assert line.startswith("ready  http://"), line + child.stderr.read()
        _, url, *about = line.split()
        yield child, url, about
    finally:
        child.kill()
        child.communicate()


def local(folder, *words):
    return ludic_serve(folder, "--engine", "local", *words)


def post(url, body, **headers):
    usual = {"Content-Type": "application/json", "Authorization": f"Bearer {token_of(url)}"}
    request = Request(url, json.dumps(body).encode(), usual | headers)
    with urlopen(request, timeout=60) as answer:
        return json.load(answer)


def load_of(url, name):
    """Number of requests that are "running" or "waiting"."""
    with urlopen(f"{url}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    (line,) = [line for line in lines if line.startswith(f"vllm:num_requests_{name}{{")]
    return float(line.split()[-1])


async def until_busy(url, name):
    while not await asyncio.to_thread(load_of, url, name):
        await asyncio.sleep(0.01)


def test_an_environment_is_served_by_the_same_command():
    with ludic_serve("ludic/Arithmetic-v0") as (_, url, _about):
        assert post(f"{url}/tools/reset", {"seed": 1})["result"]
        assert not post(f"{url}/tools/act", {"action": "1"}).get("is_error")


@pytest.mark.parametrize(
    "signum", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
async def test_a_signal_ends_it_well_though_it_samples(folder, signum):
    with local(folder) as (child, url, _):
        calls = (asyncio.to_thread(post, f"{url}{GENERATE}", LONG) for _ in range(16))
        requests = asyncio.gather(*calls, return_exceptions=True)
        await until_busy(url, "running")
        child.send_signal(signum)
        assert await asyncio.to_thread(child.wait, 60) == 0
        await requests
        assert child.stdout.read() == "stopping\n"
        assert child.stderr.read() == ""


async def test_a_signal_ends_it_well_though_requests_are_held(folder):
    with local(folder) as (child, url, _):
        post(f"{url}/pause?mode=keep", {})
        request = asyncio.create_task(asyncio.to_thread(post, f"{url}{GENERATE}", LONG))
        await until_busy(url, "waiting")
        child.terminate()
        assert await asyncio.to_thread(child.wait, 60) == 0
        with pytest.raises(ConnectionError):
            await request


def refusal(url, body, **headers):
    """Status of an error."""
    with pytest.raises(HTTPError) as refused:
        post(url, body, **headers)
    refused.value.close()
    return refused.value.code


def test_only_programs_of_its_user_can_change_the_params(folder, tmp_path):
    with local(folder) as (child, url, _):
        for path in ("/pause?mode=keep", "/collective_rpc", "/update_weights", "/sessions"):
            assert refusal(f"{url}{path}", {}, Authorization="Bearer guessed") == 401
            assert refusal(f"{url}{path}", {}, Origin="https://example.com") == 403
        # A page under a name of its own that points to this machine.
        assert refusal(f"{url}{GENERATE}", LONG, Host="attacker.example:8000") == 403
        assert post(f"{url}{GENERATE}", {"token_ids": [5]}, Authorization="")["choices"]
        assert post(f"{url}/pause?mode=keep", {}) == {"status": "paused"}
        (file,) = (tmp_path / "ludic" / "servers").iterdir()
        assert file.stat().st_mode & 0o777 == 0o600
        child.terminate()
        assert child.wait(60) == 0
        assert not file.exists()


def test_a_key_that_is_set_wins_over_a_token_that_a_killed_server_left(folder, monkeypatch):
    monkeypatch.setenv(KEY_VARIABLE, "chosen")
    chat = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}
    with local(folder) as (_, url, _about):
        assert token_of(url) is None
        # With a key, completions need it too.
        for path, body in ((GENERATE, {"token_ids": [5]}), ("/v1/chat/completions", chat)):
            assert refusal(f"{url}{path}", body, Authorization="") == 401
            assert post(f"{url}{path}", body, Authorization="Bearer chosen")["choices"]


def test_sessions_are_recorded_in_a_folder(folder, tmp_path):
    with local(folder, "--out", str(tmp_path / "sessions")) as (_, url, about):
        assert about[-2:] == ["token", token_of(url)]
        opened = post(f"{url}/sessions", {})
        chat = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 2}
        post(f"{opened['base_url']}/chat/completions", chat)
        # No session's.
        post(f"{url}/v1/chat/completions", chat)
        closed = post(
            f"{url}/sessions/{opened['key']}/close",
            {"reward": 1},
            Authorization=f"Bearer {token_of(url)}",
        )
    (file,) = (tmp_path / "sessions").iterdir()
    (rollout,) = read_rollouts(file)
    assert (len(rollout.steps), rollout.total_reward) == (1, 1.0)
    assert len(closed["steps"]) == 1


def test_a_model_of_other_servers_is_recorded_too(folder, tmp_path):
    with (
        local(folder) as (_, served, _about),
        ludic_serve(folder, "--server", served, "--out", str(tmp_path / "sessions")) as (_, url, _),
    ):
        opened = post(f"{url}/sessions", {})
        body = {"model": "m", "max_tokens": 3, "messages": [{"role": "user", "content": "a"}]}
        message = post(f"{opened['root_url']}/v1/messages", body)
        assert message["usage"]["output_tokens"] <= 3
        post(f"{url}/sessions/{opened['key']}/close", {})
    (file,) = (tmp_path / "sessions").iterdir()
    ((step,),) = (rollout.steps for rollout in read_rollouts(file))
    sampled = len(step.decision.completions[0].completion_ids)
    assert sampled == message["usage"]["output_tokens"]


def test_the_texts_of_any_other_server_are_recorded(tmp_path):
    def respond(path, headers, body):
        return 200, {"data": [{"id": "small"}]} if body is None else completion("four")

    with (
        chat_server(respond) as hosted,
        ludic_serve(hosted.url, "--out", str(tmp_path / "sessions")) as (_, url, _about),
    ):
        opened = post(f"{url}/sessions", {})
        body = {"model": "m", "messages": [{"role": "user", "content": "2 + 2"}]}
        made = post(f"{opened['base_url']}/chat/completions", body)
        assert made["choices"][0]["message"]["content"] == "four"
        (step,) = post(f"{url}/sessions/{opened['key']}/close", {})["steps"]
    assert (step["observation"], step["decision"]["action"]) == ("2 + 2", "four")


async def test_of_a_run_the_model_is_served_in_the_chosen_type(tmp_path, folder):
    write_harness(tmp_path, Harness(reply_tokens=2))
    with local(tmp_path, "--threads", "1", "--dtype", "bfloat16") as (_, url, _about):
        async with aclosing(ControlClient(url)) as control:
            assert (await control.config())["model_config"]["dtype"] == "torch.bfloat16"
        answer = await asyncio.to_thread(post, f"{url}{GENERATE}", {"token_ids": [5]})
        body = {"messages": [{"role": "user", "content": "a"}], "temperature": 90.0}
        made = await asyncio.to_thread(post, f"{url}/v1/chat/completions", body)
    assert answer["model"] == str(tmp_path)
    # A request without a limit has that of the run.
    assert made["usage"]["completion_tokens"] <= 2


def test_an_adapter_is_served_merged(tmp_path, folder):
    adapted, _ = load_model(folder, lora_rank=4)
    for name, param in adapted.named_parameters():
        if "lora_B" in name:
            param.data.normal_()
    save_model(adapted, tokenizer(), tmp_path / "adapter")
    merged = dict(checkpoint_params(adapted.named_parameters(), adapted))
    plain, _ = load_model(folder)
    plain.load_state_dict(merged, strict=False)
    body = {"token_ids": [5, 6], "sampling_params": {"max_tokens": 8, "temperature": 0}}
    with local(tmp_path / "adapter") as (_, url, _about):
        (choice,) = post(f"{url}{GENERATE}", body)["choices"]
    prompt = plain.dummy_inputs["input_ids"].new_tensor([[5, 6]])
    expected = plain.generate(prompt, max_new_tokens=8, do_sample=False)
    assert choice["token_ids"] == expected[0, 2:].tolist()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--engine local --lora 8", "--lora"),
        ("--engine local --transfer nccl", "--transfer"),
        ("--engine local --no-float32-head", "--float32-head"),
        ("--engine local --vllm-python python3", "--vllm-python"),
        ("--engine local --max-model-len 9", "--max-model-len 9"),
        ("--engine local --threads 0", "threads=0"),
        ("--engine local --device cuda", "torch finds no GPU"),
        ("--engine local --dtype float16", "float32 or bfloat16"),
        ("--engine local --dtype bfloat16 --exact", "float32 with --exact"),
        ("--engine local --deadline nan", "deadline=nan"),
        ("--engine local --max-tokens 0", "max_tokens=0"),
        ("--threads 2", "--threads"),
        ("--out traces", "--out"),
        ("--server http://localhost:1 --exact", "--exact"),
        ("", "--engine local"),
    ],
)
def test_options_that_cannot_be_followed_are_refused(folder, words, reason, capsys):
    assert main(["serve", str(folder), "--port", "0", *words.split()]) == 2
    assert reason in capsys.readouterr().err


def test_a_model_that_is_not_there_and_a_port_that_is_taken(folder, capsys):
    assert main(["serve", "./nothing", "--engine", "local", "--port", "0"]) == 2
    assert "./nothing" in capsys.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        words = ["--engine", "local", "--port", str(taken.getsockname()[1])]
        # Not 2, after which a server is not started again: another port may be free.
        assert main(["serve", str(folder), *words]) == 1
    assert "take another --port" in capsys.readouterr().err


def test_other_machines_reach_it_only_with_a_note(folder):
    with local(folder, "--host", "0.0.0.0") as (child, url, _):
        assert url.startswith("http://127.0.0.1:")
        child.terminate()
        child.wait(60)
        assert "every client that reaches 0.0.0.0 can sample, without a key" in child.stderr.read()


def test_the_token_of_a_killed_server_is_not_the_next_ones(folder):
    with local(folder) as (child, url, _about):
        left = token_of(url)
        child.kill()
        child.wait()
        assert left
        assert token_of(url) is None
        with issued_token(urlsplit(url).port) as token:
            assert token_of(url) == token != left
