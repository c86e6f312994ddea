"""The command lines of back ends, for users that the tests may not run as."""

import os
import platform
import wsgiref
from pathlib import Path

import pytest

from ludic_gym.errors import NoSandbox, SandboxError
from ludic_gym.sandbox import launch, linux
from ludic_gym.sandbox.choice import open_sandbox, why_not
from ludic_gym.sandbox.launch import Launch, start_process
from ludic_gym.sandbox.types import MEBIBYTE, Limits, Program

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
