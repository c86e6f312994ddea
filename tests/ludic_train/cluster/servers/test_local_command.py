"""`ludic serve --engine local` as a process."""

import asyncio
import json
import signal
import socket
import subprocess
from contextlib import aclosing, contextmanager
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import forked
import pytest

from ludic_gym.clients.vllm import VLLMTokenClient
from ludic_gym.commands.main import main
from ludic_gym.errors import ClientError
from ludic_gym.limits import HttpOptions
from ludic_gym.types import Sampling
from ludic_train.cluster.publish.control import ControlClient
from ludic_train.cluster.publish.files import FilesPublisher
from ludic_train.engine.policy_spec import PolicySpec, write_policy_spec
from ludic_train.models.checkpoint_names import checkpoint_params
from ludic_train.models.load import load_model, save_model
from ludic_train.server_tokens import KEY_VARIABLE, token_of

GENERATE = "/inference/v1/generate"
SHORT = Sampling(max_tokens=4)
LONG = {"token_ids": [5], "sampling_params": {"max_tokens": 250, "temperature": 90.0, "n": 64}}


@pytest.fixture(autouse=True)
def runtime_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


@pytest.fixture
def folder(tmp_path, model, tokenizer):
    save_model(model, tokenizer, tmp_path / "model")
    return tmp_path / "model"


@contextmanager
def ludic_serve(folder, *words):
    """The process, and its address."""
    command = ["-m", "ludic_gym", "serve", str(folder), "--engine", "local"]
    child = forked.Python(
        [*command, "--port", "0", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        line = child.stdout.readline()
        assert line.startswith("ready  http://"), line + child.stderr.read()
        yield child, line.split()[1]
    finally:
        child.kill()
        child.communicate()


def post(url, body, **headers):
    usual = {"Content-Type": "application/json", "Authorization": f"Bearer {token_of(url)}"}
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    request = Request(url, json.dumps(body).encode(), usual | given)
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


@pytest.mark.parametrize(
    "signum", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
async def test_a_signal_ends_it_well_though_it_samples(folder, signum):
    with ludic_serve(folder) as (child, url):
        calls = (asyncio.to_thread(post, f"{url}{GENERATE}", LONG) for _ in range(4))
        asking = asyncio.gather(*calls, return_exceptions=True)
        await until_busy(url, "running")
        child.send_signal(signum)
        assert await asyncio.to_thread(child.wait, 60) == 0
        await asking
        assert child.stdout.read() == "stopping\n"
        assert child.stderr.read() == ""


async def test_a_signal_ends_it_well_though_requests_are_held(folder):
    with ludic_serve(folder) as (child, url):
        post(f"{url}/pause", {})
        asking = asyncio.create_task(asyncio.to_thread(post, f"{url}{GENERATE}", LONG))
        await until_busy(url, "waiting")
        child.terminate()
        assert await asyncio.to_thread(child.wait, 60) == 0
        with pytest.raises(ConnectionError):
            await asking


def test_only_programs_of_its_user_can_change_the_params(folder, tmp_path):
    with ludic_serve(folder) as (child, url):
        refusals = {
            401: {"Authorization": "Bearer guessed"},
            403: {"Origin": "https://example.com"},
            415: {"Content_Type": "text/plain"},
        }
        for path in ("/pause", "/collective_rpc", "/update_weights"):
            for status, headers in refusals.items():
                with pytest.raises(HTTPError) as refused:
                    post(f"{url}{path}", {}, **headers)
                assert refused.value.code == status
                refused.value.close()
        # A page under a name of its own that points to this machine.
        with pytest.raises(HTTPError, match="403") as refused:
            post(f"{url}{GENERATE}", {"token_ids": [5]}, Host="attacker.example:8000")
        refused.value.close()
        assert post(f"{url}{GENERATE}", {"token_ids": [5]}, Authorization="")["choices"]
        assert post(f"{url}/pause", {}) == {"status": "paused"}
        (file,) = (tmp_path / "ludic" / "servers").iterdir()
        assert file.stat().st_mode & 0o777 == 0o600
        child.terminate()
        assert child.wait(60) == 0
        assert not file.exists()


def test_a_key_that_is_set_wins_over_a_token_that_a_killed_server_left(folder, monkeypatch):
    monkeypatch.setenv(KEY_VARIABLE, "chosen")
    with ludic_serve(folder) as (_, url):
        assert token_of(url) is None
        assert post(f"{url}/pause", {}, Authorization="Bearer chosen") == {"status": "paused"}
        # With a key, completions need it too.
        with pytest.raises(HTTPError, match="401") as refused:
            post(f"{url}{GENERATE}", {"token_ids": [5]}, Authorization="")
        refused.value.close()


async def test_a_server_that_is_killed_gives_its_clients_an_error_after_the_usual_retries(folder):
    options = HttpOptions(max_retries=1, backoff_s=0.01)
    with ludic_serve(folder) as (child, url):
        post(f"{url}/pause", {})
        async with VLLMTokenClient(url, lambda *_: [5], options=options) as client:
            calls = (client.continued([5], SHORT) for _ in range(8))
            asking = asyncio.gather(*calls, return_exceptions=True)
            await until_busy(url, "waiting")
            child.kill()
            for error in await asking:
                assert isinstance(error, ClientError)
                assert "2 times in a row" in str(error)
            assert client.usage.retries >= 1


async def test_a_server_that_was_started_again_is_asked_no_more_until_it_has_the_params(folder):
    model, _ = load_model(folder)
    with ludic_serve(folder) as (child, url):
        port = url.rpartition(":")[2]
        async with VLLMTokenClient(url, lambda *_: [5]) as client:
            publisher = FilesPublisher(url, clients=[client])
            await publisher.publish(model.named_parameters(), 3)
            assert (await client.continued([5], SHORT)).policy_version == 3
            child.terminate()
            await asyncio.to_thread(child.wait, 60)
            with ludic_serve(folder, "--port", port):
                with pytest.raises(ClientError, match="was it started again"):
                    await client.continued([5], SHORT)
                await publisher.publish(model.named_parameters(), 4)
                assert (await client.continued([5], SHORT)).policy_version == 4


@pytest.mark.parametrize(
    ("words", "dtype"), [([], "float32"), (["--dtype", "bfloat16"], "bfloat16")], ids=str
)
async def test_it_computes_in_the_chosen_type_and_says_so(folder, words, dtype):
    with ludic_serve(folder, *words) as (_, url):
        async with aclosing(ControlClient(url)) as control:
            assert (await control.config())["model_config"]["dtype"] == f"torch.{dtype}"
        assert post(f"{url}/v1/completions", {"prompt": "a", "max_tokens": 2})["choices"]


async def test_of_a_run_the_model_is_served(tmp_path, folder):
    write_policy_spec(tmp_path, PolicySpec())
    with ludic_serve(tmp_path, "--threads", "1") as (_, url):
        answer = post(f"{url}/v1/completions", {"prompt": "a", "max_tokens": 2})
    assert answer["model"] == str(tmp_path)


async def test_an_adapter_is_served_merged(tmp_path, folder, tokenizer):
    adapted, _ = load_model(folder, lora_rank=4)
    for name, param in adapted.named_parameters():
        if "lora_B" in name:
            param.data.normal_()
    save_model(adapted, tokenizer, tmp_path / "adapter")
    merged = dict(checkpoint_params(adapted.named_parameters(), adapted))
    plain, _ = load_model(folder)
    plain.load_state_dict(merged, strict=False)
    body = {"token_ids": [5, 6], "sampling_params": {"max_tokens": 8, "temperature": 0}}
    with ludic_serve(tmp_path / "adapter") as (_, url):
        (choice,) = post(f"{url}{GENERATE}", body)["choices"]
    prompt = plain.dummy_inputs["input_ids"].new_tensor([[5, 6]])
    expected = plain.generate(prompt, max_new_tokens=8, do_sample=False)
    assert choice["token_ids"] == expected[0, 2:].tolist()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--lora", "8"], "--lora"),
        (["--transfer", "nccl"], "--transfer"),
        (["--no-float32-head"], "--float32-head"),
        (["--vllm-python", "python3"], "--vllm-python"),
        (["--max-model-len", "9"], "--max-model-len 9"),
    ],
)
def test_what_vllm_alone_can_do_is_refused(folder, words, named, capsys):
    assert main(["serve", str(folder), "--engine", "local", *words]) == 2
    assert f"{named}: options of vLLM" in capsys.readouterr().err


def test_threads_are_not_for_vllm(folder, capsys):
    assert main(["serve", str(folder), "--threads", "2"]) == 2
    assert "--threads 2 is for --engine local" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--threads", "0"], "threads=0 must be at least 1"),
        (["--device", "cuda"], "torch finds no GPU"),
        (["--dtype", "float16"], "--dtype float16: the local engine computes in float32 or bf"),
        (["--dtype", "bfloat16", "--exact"], "--dtype bfloat16: the local engine computes in fl"),
    ],
)
def test_what_this_machine_cannot_do_is_refused(folder, words, reason, capsys):
    assert main(["serve", str(folder), "--engine", "local", *words]) == 2
    assert reason in capsys.readouterr().err


def test_a_model_that_is_not_there_and_a_port_that_is_taken(folder, capsys):
    assert main(["serve", "./nothing", "--engine", "local", "--port", "0"]) == 2
    assert "no model folder './nothing'" in capsys.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        words = ["--engine", "local", "--port", str(taken.getsockname()[1])]
        # Not 2, after which a server is not started again: another port may be free.
        assert main(["serve", str(folder), *words]) == 1
    assert "take another --port" in capsys.readouterr().err


def test_without_vllm_the_local_engine_is_named(folder, capsys):
    assert main(["serve", str(folder)]) == 2
    assert "--engine local" in capsys.readouterr().err


def test_other_machines_reach_it_only_with_a_note(folder):
    with ludic_serve(folder, "--host", "0.0.0.0") as (child, url):
        assert url.startswith("http://127.0.0.1:")
        child.terminate()
        child.wait(60)
        assert "every client that reaches 0.0.0.0 can sample, without a key" in child.stderr.read()
