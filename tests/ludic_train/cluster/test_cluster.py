"""The templates for several machines: what they start exists, and fits together."""

import os
import re
import shutil
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest
import yaml
from redis_server import free_port, needs_redis
from test_docs import help_of

FOLDER = Path(__file__).parents[3] / "examples" / "cluster"
TEMPLATES = sorted(path for path in FOLDER.iterdir() if path.suffix != ".md")
COMMAND = re.compile(r"\bludic (train|serve|status|launch)\b([^;&|\n]*)")


def strings(value):
    """All strings in a document; a list of them is one command line, or a script for sh."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and value[:2] == ["sh", "-c"]:
        yield from value[2:]
    elif isinstance(value, list) and all(isinstance(each, str) for each in value):
        yield " ".join(value)
    elif isinstance(value, list | dict):
        yield from chain.from_iterable(
            strings(each) for each in (value.values() if isinstance(value, dict) else value)
        )


def documents(name):
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def script(path):
    """Commands that a template runs, as text."""
    if path.suffix == ".sbatch":
        return path.read_text()
    return "\n".join(chain.from_iterable(strings(each) for each in documents(path.name)))


def options_of(command):
    return help_of(*(["train", "tic-tac-toe"] if command == "train" else [command]))


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_every_command_and_option_exists(path):
    found = COMMAND.findall(script(path))
    assert found
    for command, words in found:
        for option in re.findall(r"(?<=\s)--[a-z-]+", words):
            assert re.search(rf"{option}[ ,]", options_of(command)), f"{command} {option}"


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_no_command_line_has_a_password(path):
    # The commands refuse one in an address, which all users of a machine could see.
    assert not re.search(r"rediss?://[^\s/]*@|--requirepass|-cli -a", script(path))


def test_every_command_of_the_table_exists():
    rows = re.findall(r"`ludic (\w+)([^`]*)` \|$", (FOLDER / "README.md").read_text(), re.MULTILINE)
    assert {command for command, _ in rows} == {"train", "serve", "launch", "status"}
    for command, words in rows:
        assert all(option in options_of(command) for option in re.findall(r"--[a-z-]+", words))


def test_the_composed_trainer_publishes_to_the_composed_server():
    (compose,), (over,) = documents("docker-compose.yml"), documents("docker-compose.vllm.yml")
    command = compose["services"]["trainer"]["command"]
    host, port = re.fullmatch(
        r"http://(\w+):(\d+)", command[command.index("--engine") + 1]
    ).groups()
    for services in (compose["services"], over["services"]):
        assert f"--host 0.0.0.0 --port {port}" in services[host]["command"][2]
    # Every client of a server can change its params.
    assert "ports" not in compose["services"][host]


def test_the_trainer_of_kubernetes_names_every_server_once():
    both = [*documents("kubernetes.yaml"), *documents("kubernetes-vllm.yaml")]
    by_kind = {}
    for each in both:
        by_kind.setdefault((each["kind"], each["metadata"]["name"]), []).append(each["spec"])
    (job,) = by_kind["Job", "ludic-trainer"]
    named = re.findall(r"http://(\S+):8000", "".join(strings(job)))
    local, vllm = by_kind["StatefulSet", "ludic-server"]
    for servers in (local, vllm):
        service = servers["serviceName"]
        assert named == [f"ludic-server-{i}.{service}" for i in range(servers["replicas"])]
        assert ("Service", service) in by_kind
        (container,) = servers["template"]["spec"]["containers"]
        assert container["ports"] == [{"containerPort": 8000}]
    assert vllm["selector"] == local["selector"]


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_every_shell_script_parses(path):
    scripts = [path.read_text()] if path.suffix == ".sbatch" else []
    if not scripts:
        scripts = [text for each in documents(path.name) for text in strings(each) if ";" in text]
    for each in scripts:
        done = subprocess.run(["bash", "-n"], input=each, text=True, capture_output=True)
        assert done.returncode == 0, done.stderr


def program(folder, name, text):
    path = folder / name
    path.write_text(f"#!/usr/bin/env bash\n{text}\n")
    path.chmod(0o755)


@pytest.mark.slow
@needs_redis
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_the_slurm_job_trains_on_one_node_and_leaves_nothing_running(tmp_path):
    # In place of SLURM: one node, this one, on which srun runs what it is given.
    programs = tmp_path / "bin"
    programs.mkdir()
    program(programs, "scontrol", "echo localhost")
    program(programs, "srun", 'while [[ "$1" == --* ]]; do shift; done; exec "$@"')
    program(programs, "ludic", f'exec {sys.executable} -m ludic_gym "$@"')
    small = ["--demonstrations", "300", "--sft-updates", "40", "--groups", "2"]
    small += ["--updates", "8", "--group-size", "4", "--minibatches", "2", "--eval-episodes", "4"]
    done = subprocess.run(
        ["bash", str(FOLDER / "pipeline.sbatch"), "tic-tac-toe", *small],
        env={
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "SLURM_SUBMIT_DIR": str(tmp_path),
            "SLURM_JOB_NODELIST": "localhost",
            "ACTORS_PER_NODE": "2",
            "REDIS_PORT": str(free_port()),
            "SERVER_PORT": str(free_port()),
        },
        capture_output=True,
        text=True,
        timeout=540,
    )
    out = tmp_path / "runs" / "tic-tac-toe"
    logs = {path.name: path.read_text() for path in (out / "logs").glob("*.log")}
    assert done.returncode == 0, (done.stderr, logs)
    assert (out / "results.json").is_file()
    assert sum("pushed" in text for text in logs.values()) == 2
    left = subprocess.run(["pgrep", "-f", str(out)], capture_output=True, text=True)
    assert left.stdout == ""
