"""Containers: options of the engine. Their effect is tested with the others, where one runs."""

import os
import platform
import tempfile
import wsgiref
from pathlib import Path

import pytest

from ludic_gym.errors import ConfigError, NoSandbox, SandboxError
from ludic_gym.sandbox import choice, launch, linux
from ludic_gym.sandbox.choice import (
    chosen_name,
    open_sandbox,
    sandbox_names,
    shared_sandbox,
    why_not,
)
from ludic_gym.sandbox.container import container, require_image
from ludic_gym.sandbox.launch import Launch, start_process
from ludic_gym.sandbox.seccomp import syscall_filter
from ludic_gym.sandbox.types import MEBIBYTE, Limits, Program


@pytest.fixture
def without_bwrap(monkeypatch, tmp_path):
    """A machine on whose PATH there is nothing, as far as back ends can tell."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(choice, "BACKENDS", {"bubblewrap": choice.BACKENDS["bubblewrap"]})
    why_not.cache_clear()
    yield
    why_not.cache_clear()


def test_nothing_safe_is_an_error_that_says_what_to_install(without_bwrap):
    with pytest.raises(NoSandbox, match=r"bubblewrap: bwrap is not installed.*apt install bubble"):
        open_sandbox()


def test_a_plain_process_is_used_where_nothing_is_safe_only_if_allowed(without_bwrap):
    sandbox = open_sandbox(allow_unsafe=True)
    assert sandbox.name == "process"
    assert not sandbox.guarantees.network


def test_a_plain_process_must_be_allowed():
    with pytest.raises(ConfigError, match="'process' protects nothing; allow_unsafe=True"):
        open_sandbox("process")


def test_unknown_names_are_told_the_known_ones():
    with pytest.raises(ConfigError, match=r"no sandbox 'chroot'; there are auto, bubblewrap"):
        open_sandbox("chroot")


def test_the_one_that_was_named_is_not_replaced(without_bwrap):
    with pytest.raises(NoSandbox, match="bwrap is not installed"):
        open_sandbox("bubblewrap", allow_unsafe=True)


def test_auto_takes_the_first_that_works():
    working = [name for name in choice.BACKENDS if not why_not(name)]
    assert chosen_name("auto", allow_unsafe=True) == [*working, "process"][0]
    assert sandbox_names()[0] == "bubblewrap"


def test_a_shared_sandbox_is_one_object():
    assert shared_sandbox("process", allow_unsafe=True) is shared_sandbox(
        "process", allow_unsafe=True
    )


CONTAINER_LIMITS = Limits(memory_bytes=300 * MEBIBYTE, processes=20, disk_bytes=10 * MEBIBYTE)
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
    launch = container("docker", "here").launch(CONTAINER_LIMITS)
    options = launch.command[: launch.command.index("here")]
    assert f" {option} " in " ".join(options) + " "


def test_a_container_gets_the_filter_of_system_calls(asked):
    command = container("docker", "here").launch(CONTAINER_LIMITS).command
    assert repr(syscall_filter()) in command[-1]


def test_podman_adds_no_folder_and_writes_the_number_of_the_process(asked):
    launch = container("podman", "here").launch(CONTAINER_LIMITS)
    assert "--read-only-tmpfs=false" in launch.command
    assert launch.command[launch.command.index("--pidfile") + 1] == str(launch.pid_file)
    launch.pid_file.touch()
    launch.end()
    assert not launch.pid_file.parent.exists()


def test_containers_have_names_and_users_of_their_own(asked):
    first, second = [container("docker", "here").launch(CONTAINER_LIMITS).command for _ in range(2)]
    for option in ("--name", "--user"):
        at = first.index(option) + 1
        assert first[at] != second[at]
    assert 10_000 <= int(first[first.index("--user") + 1].split(":")[0]) < 65_000


def test_the_engine_is_asked_for_the_image_once_and_to_remove_what_is_left(asked):
    backend = container("docker", "here")
    launch = [backend.launch(CONTAINER_LIMITS) for _ in range(2)][1]
    launch.end()
    name = launch.command[launch.command.index("--name") + 1]
    while len(lines := asked.read_text().splitlines()) < 2:
        pass
    assert lines == ["image inspect here", f"rm --force {name}"]


def test_an_image_that_is_missing_is_told_with_the_remedy(asked):
    with pytest.raises(NoSandbox, match=r"no such image: gone \(.*docker pull gone\)"):
        container("docker", "gone").launch(CONTAINER_LIMITS)


def test_an_engine_that_is_missing_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoSandbox, match="podman is not installed"):
        container("podman").launch(CONTAINER_LIMITS)


def test_workers_wait_for_programs_of_their_limits_alone():
    backend = container("docker")
    assert backend.fixed(CONTAINER_LIMITS) == (300 * MEBIBYTE, 20, 10 * MEBIBYTE)
    assert backend.failed(125)
    assert not backend.failed(137)


LIMITS = Limits(disk_bytes=64 * MEBIBYTE)


@pytest.fixture
def a_user(monkeypatch, tmp_path):
    """This process passes for a user other than root, with bwrap installed."""
    bwrap = tmp_path / "bwrap"
    bwrap.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


@pytest.fixture
def command(a_user):
    """The options of bubblewrap for a user."""
    launch = linux.launch_bubblewrap(LIMITS)
    for descriptor in launch.descriptors:
        os.close(descriptor)
    return " ".join(launch.command[: launch.command.index("--")])


def test_a_user_is_nobody_in_a_namespace(command):
    assert "--unshare-user --uid 65534 --gid 65534 --cap-drop ALL" in command
    assert "--cap-add" not in command


@pytest.mark.parametrize(
    "option",
    [
        "--unshare-net",
        "--unshare-pid",
        "--unshare-ipc",
        "--die-with-parent",
        "--new-session",
        "--clearenv",
        "--ro-bind /usr /usr",
        "--size 50331648 --tmpfs /tmp",  # 48 of the 64 MiB
        "--size 16777216 --tmpfs /dev/shm",
        "--remount-ro /dev --remount-ro /",
    ],
)
def test_bubblewrap_is_told_to(option, command):
    assert option in command


def test_what_bubblewrap_makes_read_only_is_made_so_last(command):
    assert command.index("--remount-ro / ") > command.index("--tmpfs /dev/shm")


@pytest.mark.parametrize("launch", [linux.launch_bubblewrap, linux.launch_native])
def test_an_old_kernel_is_refused_to_users_alone(launch, a_user, monkeypatch):
    monkeypatch.setattr(platform, "release", lambda: "5.10.0-28-amd64")
    with pytest.raises(NoSandbox, match=r"Linux 5\.10\.0-28-amd64 does not count processes"):
        launch(LIMITS)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(linux, "uid_ranges", lambda: ((0, 65536),))
    for descriptor in launch(LIMITS).descriptors:
        os.close(descriptor)


def test_a_root_whose_namespace_has_no_other_user_is_a_user(a_user, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(linux, "uid_ranges", lambda: ((0, 1),))
    assert linux.program_uid() == 0


@pytest.mark.parametrize(
    ("disk_bytes", "sizes"),
    [
        (64 * MEBIBYTE, (48 * MEBIBYTE, 16 * MEBIBYTE)),
        (20_000, (10_000, 10_000)),
        (1, (4096, 4096)),
    ],
)
def test_file_systems_share_the_disk(disk_bytes, sizes):
    assert linux.file_system_sizes(disk_bytes) == sizes


@pytest.mark.parametrize(
    ("ranges", "low", "high"),
    [
        (((0, 4294967295),), 2**31 - 1, 2**32 - 3),
        (((0, 65536),), 32768, 65534),
        (((0, 1000), (1000, 100000)), 51000, 100998),
    ],
)
def test_a_fresh_user_is_from_the_upper_half_of_those_there_are(ranges, low, high, monkeypatch):
    monkeypatch.setattr(linux, "uid_ranges", lambda: ranges)
    uids = {linux.fresh_uid() for _ in range(50)}
    assert low <= min(uids) <= max(uids) <= high
    assert len(uids) > 40


def test_a_command_that_is_missing_is_cleaned_up_after():
    ended = []
    launch = Launch(command=("/no/such/command",), end=lambda: ended.append(True))
    with pytest.raises(SandboxError, match="cannot start /no/such/command"):
        start_process(launch)
    assert ended == [True]


@pytest.mark.parametrize("name", ["bubblewrap", "native"])
async def test_this_package_is_empty_for_programs_if_it_is_installed_beside_them(name, monkeypatch):
    if reason := why_not(name):
        pytest.skip(f"{name} does not work here: {reason}")
    # A folder of the standard library stands for the package.
    folder = Path(wsgiref.__file__).resolve().parent
    monkeypatch.setattr(launch, "PACKAGE", folder)
    source = f"""
import os
print(os.listdir({str(folder)!r}), "json" in os.listdir({str(folder.parent)!r}))
try: open({str(folder / "new")!r}, "w")
except OSError: print("refused")
"""
    sandbox = open_sandbox(name, warm=0, concurrency=1)
    try:
        assert (await sandbox.run(Program(source=source))).stdout == b"[] True\nrefused\n"
    finally:
        await sandbox.close()


def test_only_a_package_below_a_folder_of_programs_is_hidden(monkeypatch):
    monkeypatch.setattr(launch, "PACKAGE", Path("/opt/python/lib/ludic_gym"))
    assert launch.hidden_folders("/opt/python") == ("/opt/python/lib/ludic_gym",)
    assert launch.hidden_folders("/opt/pyth") == ()
    monkeypatch.setattr(launch, "PACKAGE", Path("/usr/lib/python3/ludic_gym"))
    assert launch.hidden_folders("/opt/python") == ("/usr/lib/python3/ludic_gym",)
