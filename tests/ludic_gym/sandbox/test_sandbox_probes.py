"""The doctor's programs find what is open, and find nothing where all is shut."""

from dataclasses import replace
from pathlib import Path

import pytest

from ludic_gym.commands import sandbox as sandbox_command
from ludic_gym.commands.main import main
from ludic_gym.commands.sandbox import memory_remark
from ludic_gym.sandbox.choice import open_sandbox
from ludic_gym.sandbox.launch import PLAIN
from ludic_gym.sandbox.local import LocalSandbox
from ludic_gym.sandbox.memory import Place
from ludic_gym.sandbox.probes import (
    HEAD,
    MEMORY,
    OUTSIDE,
    PROBES,
    cpu_verdict,
    find_breaches,
    memory_verdict,
    witnesses,
)
from ludic_gym.sandbox.types import ExecResult, Guarantees, Program

EVERYTHING = dict.fromkeys(Guarantees.__slots__, "")
RESULT = ExecResult(stdout=b"", stderr=b"", exit_code=0, ended="exited", wall_s=1.0)


@pytest.mark.long
async def test_what_is_promised_holds(safe_sandbox):
    assert await find_breaches(safe_sandbox) == EVERYTHING


class Boastful:
    """A plain process that promises some things it does not keep."""

    name = "boastful"

    def __init__(self, inner, *promises):
        self.run = inner.run
        nothing = dict.fromkeys(Guarantees.__slots__, False)
        self.guarantees = Guarantees(**nothing | dict.fromkeys(promises, True))


def left_behind():
    return [path for where in OUTSIDE for path in Path(where).glob("probe*-*")]


async def test_a_plain_process_is_found_out():
    inner, before = open_sandbox("process", allow_unsafe=True, warm=0), set(left_behind())
    boastful = Boastful(inner, "network", "filesystem", "disk")
    assert await find_breaches(boastful) == {
        "network": "a program reached the host's loopback (connections)",
        "filesystem": "a program read a file of the host (files)",
        "disk": "a program of 16 MiB of files wrote 320 MiB (files)",
    }
    # It wrote to the host, which is as it was.
    assert set(left_behind()) <= before
    await inner.close()


async def test_private_memory_is_taken_where_nothing_limits_it():
    sandbox = LocalSandbox(PLAIN, warm=0)
    source = HEAD + MEMORY["private memory"]
    program = Program(source=source, arguments=("/", "9", "1", "probe"))
    limits = replace(PROBES["memory"][2], processes=1000, memory_bytes=2**30)
    result = await sandbox.run(program, limits=limits)
    await sandbox.close()
    with witnesses() as witness:
        assert "of 128 MiB got 384 MiB" in memory_verdict(result, witness)


@pytest.mark.parametrize(
    ("verdict", "result", "reason"),
    [
        (memory_verdict, replace(RESULT, stdout=b"held 64\n" * 4), ""),
        (memory_verdict, replace(RESULT, stdout=b"held 64\n" * 5), "of 128 MiB got 320 MiB"),
        (cpu_verdict, replace(RESULT, ended="cpu"), ""),
        (cpu_verdict, replace(RESULT, ended="timeout", wall_s=3.2), ""),
        (cpu_verdict, replace(RESULT, ended="timeout", wall_s=60.0), "ended after 60 s"),
        (cpu_verdict, RESULT, "did not run: exited, 0"),
    ],
)
def test_a_verdict_is_why_a_promise_is_broken(verdict, result, reason):
    with witnesses() as witness:
        assert reason in verdict(result, witness)
        assert bool(reason) == bool(verdict(result, witness))


def test_a_probe_that_did_not_run_is_no_proof():
    broken = replace(RESULT, exit_code=1, stderr=b"Traceback\nImportError: none")
    with witnesses() as witness:
        for guarantee in ("network", "filesystem", "processes", "disk"):
            assert "did not run: exited, 1, ImportError" in PROBES[guarantee][1](broken, witness)


def test_the_doctor_says_where_memory_is_limited(monkeypatch):
    place = Place(version=1, folder=Path("/sys/fs/cgroup/memory/x"))
    monkeypatch.setattr(sandbox_command, "place", lambda: place)
    assert "control groups (version 1) in /sys/fs/cgroup/memory/x" in memory_remark()
    place = Place(why_not="/x: Permission denied")
    assert "measured ten times a second" in memory_remark()
    assert "(/x: Permission denied)" in memory_remark()


@pytest.fixture
def doctor(monkeypatch, capsys):
    """A function: the exit code and the output of the doctor who finds that."""

    def examined(breaches, reason=""):
        async def examine():
            return breaches

        monkeypatch.setattr(sandbox_command, "why_not", lambda: reason)
        monkeypatch.setattr(sandbox_command, "examine", examine)
        return main(["sandbox", "doctor"]), capsys.readouterr().out

    return examined


def test_the_doctor_is_content_with_a_sandbox_that_holds(doctor):
    code, printed = doctor(EVERYTHING)
    assert (code, printed.count(" holds")) == (0, 6)


def test_the_doctor_fails_where_nothing_works_or_a_guarantee_is_broken(doctor):
    code, printed = doctor({**EVERYTHING, "disk": "it wrote 9 MiB"})
    assert code == 1
    assert printed.count(" holds") == 5
    assert "disk: it wrote 9 MiB" in printed
    code, printed = doctor({}, "unshare: Operation not permitted")
    assert (code, printed) == (1, "no sandbox works here: unshare: Operation not permitted\n")
