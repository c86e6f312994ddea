"""Containers: options of the engine. Their effect is tested with the others, where one runs."""

import os
import tempfile

import pytest

from ludic_gym.errors import NoSandbox
from ludic_gym.sandbox.container import container, require_image
from ludic_gym.sandbox.seccomp import syscall_filter
from ludic_gym.sandbox.types import MEBIBYTE, Limits

LIMITS = Limits(memory_bytes=300 * MEBIBYTE, processes=20, disk_bytes=10 * MEBIBYTE)
# Writes its arguments to a file, and has one image, "here".
ENGINE = """#!/bin/sh
echo "$@" >> "$(dirname "$0")/asked"
[ "$1 $2 $3" = "image inspect here" ] && exit 0
[ "$1" = rm ] && exit 0
echo "Error: no such image: $3" >&2
exit 1
"""


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """The file with the arguments of a stand-in for the engine's command, a line per call."""
    for name in ("docker", "podman"):
        engine = tmp_path / name
        engine.write_text(ENGINE)
        engine.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    # Launches that are not started leave their folders.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    require_image.cache_clear()
    yield tmp_path / "asked"
    require_image.cache_clear()


@pytest.mark.parametrize(
    "option",
    [
        "--network none",
        "--read-only",
        "--cap-drop ALL",
        "--security-opt no-new-privileges",
        "--memory 314572800 --memory-swap 314572800",
        "--pids-limit 21",
        "--tmpfs /tmp:rw,exec,size=5242880,mode=1777",
        "--shm-size 5242880",
        "--log-driver none",
        "--pull never",
        "--rm --interactive --init",
        "--env PYTHONHASHSEED=0",
    ],
)
def test_a_container_is_told_to(option, asked):
    launch = container("docker", "here").launch(LIMITS)
    options = launch.command[: launch.command.index("here")]
    assert f" {option} " in " ".join(options) + " "


def test_a_container_gets_the_filter_of_system_calls(asked):
    command = container("docker", "here").launch(LIMITS).command
    assert repr(syscall_filter()) in command[-1]


def test_podman_adds_no_folder_and_writes_the_number_of_the_process(asked):
    launch = container("podman", "here").launch(LIMITS)
    assert "--read-only-tmpfs=false" in launch.command
    assert launch.command[launch.command.index("--pidfile") + 1] == str(launch.pid_file)
    launch.pid_file.touch()
    launch.end()
    assert not launch.pid_file.parent.exists()


def test_containers_have_names_and_users_of_their_own(asked):
    first, second = [container("docker", "here").launch(LIMITS).command for _ in range(2)]
    for option in ("--name", "--user"):
        at = first.index(option) + 1
        assert first[at] != second[at]
    assert 10_000 <= int(first[first.index("--user") + 1].split(":")[0]) < 65_000


def test_the_engine_is_asked_for_the_image_once_and_to_remove_what_is_left(asked):
    backend = container("docker", "here")
    launch = [backend.launch(LIMITS) for _ in range(2)][1]
    launch.end()
    name = launch.command[launch.command.index("--name") + 1]
    while len(lines := asked.read_text().splitlines()) < 2:
        pass
    assert lines == ["image inspect here", f"rm --force {name}"]


def test_an_image_that_is_missing_is_told_with_the_remedy(asked):
    with pytest.raises(NoSandbox, match=r"no such image: gone \(.*docker pull gone\)"):
        container("docker", "gone").launch(LIMITS)


def test_an_engine_that_is_missing_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoSandbox, match="podman is not installed"):
        container("podman").launch(LIMITS)


def test_workers_wait_for_programs_of_their_limits_alone():
    backend = container("docker")
    assert backend.fixed(LIMITS) == (300 * MEBIBYTE, 20, 10 * MEBIBYTE)
    assert backend.failed(125)
    assert not backend.failed(137)
