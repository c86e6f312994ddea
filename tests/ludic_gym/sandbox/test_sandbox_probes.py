"""The doctor's programs find what is open, and find nothing where all is shut."""

from dataclasses import replace
from pathlib import Path

import pytest

from ludic_gym.commands import sandbox as sandbox_command
from ludic_gym.commands.main import main
from ludic_gym.commands.sandbox import Finding, memory_remark, remarks, table_rows
from ludic_gym.sandbox.choice import BACKENDS, open_sandbox, why_not
from ludic_gym.sandbox.launch import PLAIN, launch_plainly
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
@pytest.mark.slow_in_containers
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


def unlimited(limits):
    """Launch of a plain process whose memory as a whole is not limited."""
    return replace(launch_plainly(limits), descends=False)


# The others would fill this machine's disk.
@pytest.mark.parametrize("way", sorted({*MEMORY} - {"files in memory", "empty files"}))
async def test_an_attack_on_the_memory_succeeds_where_nothing_limits_it(way):
    sandbox = LocalSandbox(replace(PLAIN, launch=unlimited), warm=0)
    program = Program(source=HEAD + MEMORY[way], arguments=("/", "9", "1", "probe"))
    result = await sandbox.run(
        program, limits=replace(PROBES["memory"][2], processes=1000, memory_bytes=2**30)
    )
    await sandbox.close()
    with witnesses() as witness:
        assert "of 128 MiB got" in memory_verdict(result, witness)


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


def test_the_table_shows_what_holds_and_the_remarks_say_why_not():
    findings = {
        "bubblewrap": Finding(why_not="bwrap is not installed", broken={}),
        "native": Finding(broken={**EVERYTHING, "disk": "it wrote 9 MiB"}),
    }
    rows = table_rows(findings)
    assert [row[0] for row in rows] == list(EVERYTHING)
    assert [row[1] for row in rows] == ["-"] * 6
    assert [row[2] for row in rows] == ["holds"] * 5 + ["BROKEN"]
    assert remarks(findings) == [
        "",
        "bubblewrap does not work here: bwrap is not installed",
        "native, disk: it wrote 9 MiB",
        memory_remark(),
        "Environments use native.",
    ]


def test_the_doctor_says_where_memory_is_limited(monkeypatch):
    place = Place(version=1, folder=Path("/sys/fs/cgroup/memory/x"))
    monkeypatch.setattr(sandbox_command, "place", lambda: place)
    assert "control groups (version 1) in /sys/fs/cgroup/memory/x" in memory_remark()
    place = Place(why_not="/x: Permission denied")
    assert "measured ten times a second" in memory_remark()
    assert "(/x: Permission denied)" in memory_remark()


@pytest.mark.slow
def test_the_doctor_is_content_with_a_sandbox_that_holds(capsys):
    name = next((name for name in BACKENDS if not why_not(name)), None)
    if name is None:
        pytest.skip(f"no sandbox works here: {[why_not(one) for one in BACKENDS]}")
    assert main(["sandbox", "doctor", "--only", name]) == 0
    printed = capsys.readouterr().out
    assert printed.count(" holds") == 6
    assert f"Environments use {name}." in printed


@pytest.mark.parametrize(
    "finding",
    [
        Finding(why_not="bwrap is not installed", broken={}),
        Finding(broken={"network": "a program reached the host's loopback"}),
    ],
)
def test_the_doctor_fails_where_nothing_works_or_the_default_leaks(finding, monkeypatch, capsys):
    monkeypatch.setattr(sandbox_command, "examine", lambda name: finding)
    assert main(["sandbox", "doctor"]) == 1


def test_the_doctor_is_asked_for_known_sandboxes(capsys):
    assert main(["sandbox", "doctor", "--only", "chroot"]) == 2
    assert "no sandbox 'chroot'; there are bubblewrap, native" in capsys.readouterr().err
