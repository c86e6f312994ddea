"""vLLM as a child process: started with the right words, and gone without a trace."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from urllib.request import urlopen

import pytest
from fake_vllm.install import install
from fake_vllm.started import started_server

from ludic_gym.commands.main import main
from ludic_gym.errors import ConfigError
from ludic_train.cluster.servers.supervisor import responds
from ludic_train.cluster.servers.vllm_command import (
    Installed,
    ServeOptions,
    command_line,
    environment,
    find_vllm,
)
from ludic_train.errors import ModelNotFound

ANY_PORT = ServeOptions(port=0)
GPU = Installed(python="py", version="0.32.0", on_cpu=False)
CPU = Installed(python="py", version="0.32.0", on_cpu=True)


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A Python whose vLLM starts at once."""
    python = install(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return python


def seen(server):
    with urlopen(f"{server.url}/seen", timeout=30) as response:
        return json.load(response)


def is_alive(pid):
    """True if the process runs; one that has ended and was not waited for does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pid):
    for _ in range(600):
        if not is_alive(pid):
            return True
        time.sleep(0.05)
    return False


def pairs(words):
    return dict(pairwise(words))


def test_vllm_is_started_with_what_training_needs():
    flags = pairs(command_line("org/model", ServeOptions(), GPU))
    assert flags["--model"] == "org/model"
    assert flags["--host"] == "127.0.0.1"
    assert flags["--logprobs-mode"] == "processed_logprobs"
    assert flags["--generation-config"] == "vllm"
    assert json.loads(flags["--weight-transfer-config"]) == {"backend": "ludic"}
    assert json.loads(flags["--hf-overrides"]) == {"head_dtype": "float32"}
    assert "--enable-scale-out" in flags
    assert "--dtype" not in flags
    assert "--enable-lora" not in flags
    assert "--enable-return-routed-experts" not in flags


def test_sampling_masks_are_a_flag_on_gpus_alone():
    options = ServeOptions(sampling_mask=True)
    assert "--return-sampling-mask" in command_line("org/model", options, GPU)
    assert "--return-sampling-mask" not in command_line("org/model", ServeOptions(), GPU)
    assert environment(options, GPU, {}, Path("p"))["VLLM_USE_V2_MODEL_RUNNER"] == "1"
    with pytest.raises(ConfigError, match="cannot return the tokens that top_p, top_k and min_p"):
        command_line("org/model", options, CPU)


def test_options_become_flags_and_further_flags_come_last():
    options = ServeOptions(
        lora=8,
        max_loras=2,
        tensor_parallel_size=4,
        transfer="nccl",
        port=1,
        routed_experts=True,
    )
    words = command_line("org/model", options, GPU, ["--dtype", "bfloat16"])
    flags = pairs(words)
    assert "--enable-return-routed-experts" in words
    assert flags["--max-lora-rank"] == "8"
    assert flags["--max-loras"] == "2"
    assert flags["--tensor-parallel-size"] == "4"
    assert json.loads(flags["--weight-transfer-config"]) == {"backend": "nccl"}
    assert words[-2:] == ["--dtype", "bfloat16"]


@pytest.mark.parametrize(("rank", "limit"), [(1, "1"), (4, "8"), (16, "16"), (300, "320")])
def test_the_rank_of_adapters_is_rounded_up_to_one_that_vllm_has(rank, limit):
    assert pairs(command_line("m", ServeOptions(lora=rank), GPU))["--max-lora-rank"] == limit


def test_a_rank_above_all_of_vllms_is_refused():
    with pytest.raises(ConfigError, match="lora=513 must be at most 512"):
        ServeOptions(lora=513)


def test_on_a_cpu_it_computes_in_float32_unless_another_type_is_chosen():
    assert pairs(command_line("org/model", ServeOptions(), CPU))["--dtype"] == "float32"
    chosen = ServeOptions(dtype="bfloat16")
    for vllm in (CPU, GPU):
        assert pairs(command_line("org/model", chosen, vllm))["--dtype"] == "bfloat16"


@pytest.mark.parametrize(
    ("options", "vllm", "reason"),
    [
        (ServeOptions(transfer="nccl"), CPU, "--transfer nccl is for GPUs"),
        (ServeOptions(routed_experts=True), CPU, "on GPUs alone.*--engine local"),
        (ServeOptions(device="cpu"), GPU, "a build for GPUs"),
        (ServeOptions(device="cuda"), CPU, "the build for CPUs"),
    ],
)
def test_a_device_that_this_vllm_has_not_is_refused(options, vllm, reason):
    with pytest.raises(ConfigError, match=reason):
        command_line("org/model", options, vllm)


def test_of_a_run_the_model_is_served(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "harness.json").write_text("{}")
    flags = pairs(command_line(str(tmp_path), ServeOptions(), GPU))
    assert flags["--model"] == str(tmp_path / "model")


def test_an_adapter_alone_cannot_be_served(tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ConfigError, match="serve its base model with --lora"):
        command_line(str(tmp_path), ServeOptions(), GPU)


def test_a_folder_that_is_not_there_is_said_at_once():
    with pytest.raises(ModelNotFound, match=r"no model folder './nothing'"):
        command_line("./nothing", ServeOptions(), GPU)


@pytest.mark.parametrize("bad", [{"port": -1}, {"port": 65536}, {"lora": -1}, {"max_loras": 0}])
def test_options_that_cannot_work_are_refused(bad):
    with pytest.raises(ConfigError, match="must be"):
        ServeOptions(**bad)


def test_which_vllm_a_python_has_is_found_out(fake):
    assert find_vllm(None) == Installed(python=fake, version="0.32.0", on_cpu=True)


def test_a_python_without_vllm_is_told_what_to_install():
    with pytest.raises(ConfigError, match="has no vLLM; install it beside Ludic"):
        find_vllm(sys.executable)


def test_the_command_vllm_leads_to_its_python(tmp_path, monkeypatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("python", "vllm"):
        (folder / name).touch()
        (folder / name).chmod(0o755)
    found = '{"found": {"vllm": "0.32.0"}, "importable": true}'
    (folder / "python").write_text(f"#!/bin/sh\necho '{found}'\n")
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    assert find_vllm(None) == Installed(
        python=str(folder / "python"), version="0.32.0", on_cpu=False
    )


def test_a_python_that_is_not_there():
    with pytest.raises(ConfigError, match="no Python '/no/python'"):
        find_vllm("/no/python")


def test_a_vllm_that_is_too_old_is_refused(tmp_path, monkeypatch):
    install(tmp_path, name="vllm", version="0.27.1")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"has vllm 0.27.1; 0.28 is the oldest"):
        find_vllm(None)


def test_a_server_answers_inside_the_block_and_is_gone_after_it(fake):
    with started_server("org/model", ANY_PORT, find_vllm(fake), ["--max-model-len", "7"]) as server:
        what = seen(server)
        assert what["words"][-2:] == ["--max-model-len", "7"]
        assert what["env"]["VLLM_SERVER_DEV_MODE"] == "1"
        assert is_alive(what["worker"])
    assert gone(server.process.pid)
    assert gone(what["worker"])


def test_our_engine_comes_along_and_nothing_else_of_ours(fake):
    with started_server("org/model", ANY_PORT, find_vllm(fake)) as server:
        folder = seen(server)["env"]["PYTHONPATH"].split(":")[0]
        assert sorted(os.listdir(folder)) == ["ludic_vllm", "ludic_vllm_plugin-0.dist-info"]
        program = (
            "from importlib.metadata import entry_points;"
            "print(entry_points(group='vllm.general_plugins'))"
        )
        found = subprocess.run(
            [fake, "-S", "-c", program],
            env={"PYTHONPATH": folder},
            capture_output=True,
            text=True,
            check=True,
        )
        assert "ludic_vllm:register" in found.stdout
    assert not os.path.exists(folder)


def test_workers_that_the_server_left_behind_are_ended_too(fake):
    with started_server("org/model", ANY_PORT, find_vllm(fake), ["--leave-worker"]) as server:
        worker = seen(server)["worker"]
    assert gone(worker)


def test_workers_have_time_to_tidy_up_after_the_server(fake, tmp_path):
    tidied = tmp_path / "tidied"
    flags = ["--tidy-worker", str(tidied)]
    with started_server("org/model", ANY_PORT, find_vllm(fake), flags):
        assert not tidied.exists()
    assert tidied.exists()


def test_a_port_that_is_taken_is_an_error_before_anything_is_started(fake, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert main(["serve", "org/model", "--port", str(taken.getsockname()[1])]) == 1
    assert "take another --port, 0 for any" in capsys.readouterr().err


@contextmanager
def ludic_serve(*words):
    command = [sys.executable, "-m", "ludic_gym", "serve", "org/model", "--port", "0", *words]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


@pytest.mark.long
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_the_command_serves_until_a_signal_comes(fake, signum):
    with ludic_serve() as child:
        line = child.stdout.readline()
        url = line.split()[1]
        assert line.startswith("ready  http://127.0.0.1:")
        with urlopen(f"{url}/seen", timeout=30) as response:
            worker = json.load(response)["worker"]
        child.send_signal(signum)
        assert child.wait(60) == 0
        assert gone(worker)


def test_a_command_that_is_killed_takes_the_server_with_it(fake):
    with ludic_serve() as child:
        url = child.stdout.readline().split()[1]
        with urlopen(f"{url}/seen", timeout=30) as response:
            worker = json.load(response)["worker"]
        child.kill()
        assert gone(worker)


@pytest.mark.long
def test_a_server_that_ends_by_itself_is_started_again_three_times(fake):
    with ludic_serve() as child:
        url = child.stdout.readline().split()[1]
        for _ in range(4):
            with urlopen(f"{url}/end", timeout=30):
                pass
            while child.poll() is None and not responds(url):
                time.sleep(0.05)
        assert child.wait(60) == 1
        text, errors = child.communicate()
        assert text.count("vLLM ended with code 3; starting it again (") == 3
        assert "vLLM ended with code 3, after 3 restarts" in errors


def test_the_command_prints_the_end_of_a_broken_servers_log(fake, capsys):
    assert main(["serve", "org/model", "--port", "0", "--break"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == "RuntimeError: not enough memory"


def test_other_machines_can_reach_it_only_if_asked_to_and_with_a_note(fake, capsys):
    assert main(["serve", "org/model", "--port", "0", "--break", "--host", "0.0.0.0"]) == 1
    assert "every client that reaches 0.0.0.0 can change the model" in capsys.readouterr().err
