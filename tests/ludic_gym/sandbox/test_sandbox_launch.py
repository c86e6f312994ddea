"""The choice of a sandbox, and the commands that start it."""

import os
import platform
import wsgiref
from pathlib import Path

import pytest

from ludic_gym.errors import ConfigError, NoSandbox, SandboxError
from ludic_gym.sandbox import choice, launch
from ludic_gym.sandbox.choice import open_sandbox, shared_sandbox, why_not
from ludic_gym.sandbox.launch import Launch, start_process
from ludic_gym.sandbox.types import MEBIBYTE, Limits, Program


@pytest.fixture
def without_native(monkeypatch):
    """A machine whose kernel refuses namespaces."""
    monkeypatch.setattr(choice, "why_not", lambda: "unshare: Operation not permitted")


@pytest.mark.parametrize("name", ["auto", "native"])
def test_nothing_safe_is_an_error_that_says_why(name, without_native):
    with pytest.raises(NoSandbox, match=r"native: unshare: Operation not permitted.*allow_unsafe"):
        open_sandbox(name)


def test_a_plain_process_is_used_where_nothing_is_safe_only_if_allowed(without_native):
    sandbox = open_sandbox(allow_unsafe=True)
    assert sandbox.name == "process"
    assert not sandbox.guarantees.network
    with pytest.raises(NoSandbox):
        open_sandbox("native", allow_unsafe=True)


def test_a_plain_process_must_be_allowed():
    with pytest.raises(ConfigError, match="'process' protects nothing; allow_unsafe=True"):
        open_sandbox("process")


def test_unknown_names_are_told_the_known_ones():
    with pytest.raises(ConfigError, match=r"no sandbox 'chroot'; there are auto, native, process"):
        open_sandbox("chroot")


def test_a_shared_sandbox_is_one_object():
    assert shared_sandbox("process", allow_unsafe=True) is shared_sandbox(
        "process", allow_unsafe=True
    )


def test_an_old_kernel_is_refused_to_users_alone(monkeypatch):
    monkeypatch.setattr(platform, "release", lambda: "5.10.0-28-amd64")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(NoSandbox, match=r"Linux 5\.10\.0-28-amd64 does not count processes"):
        launch.launch_natively(Limits())
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(launch, "uid_ranges", lambda: ((0, 65536),))
    assert launch.program_uid()


def test_a_root_whose_namespace_has_no_other_user_is_a_user(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(launch, "uid_ranges", lambda: ((0, 1),))
    assert launch.program_uid() == 0


@pytest.mark.parametrize(
    ("disk_bytes", "sizes"),
    [
        (64 * MEBIBYTE, (48 * MEBIBYTE, 16 * MEBIBYTE)),
        (20_000, (10_000, 10_000)),
        (1, (4096, 4096)),
    ],
)
def test_file_systems_share_the_disk(disk_bytes, sizes):
    assert launch.file_system_sizes(disk_bytes) == sizes


@pytest.mark.parametrize(
    ("ranges", "low", "high"),
    [
        (((0, 4294967295),), 2**31 - 1, 2**32 - 3),
        (((0, 1000), (1000, 100000)), 51000, 100998),
    ],
)
def test_a_fresh_user_is_from_the_upper_half_of_those_there_are(ranges, low, high, monkeypatch):
    monkeypatch.setattr(launch, "uid_ranges", lambda: ranges)
    uids = {launch.fresh_uid() for _ in range(50)}
    assert low <= min(uids) <= max(uids) <= high
    assert len(uids) > 40


def test_a_command_that_is_missing_is_cleaned_up_after():
    ended = []
    missing = Launch(command=("/no/such/command",), end=lambda: ended.append(True))
    with pytest.raises(SandboxError, match="cannot start /no/such/command"):
        start_process(missing)
    assert ended == [True]


async def run(source):
    if reason := why_not():
        pytest.skip(f"no sandbox works here: {reason}")
    sandbox = open_sandbox("native", warm=0, concurrency=1)
    try:
        return (await sandbox.run(Program(source=source))).stdout
    finally:
        await sandbox.close()


async def test_a_program_has_a_root_of_its_own():
    shown = await run("import os; print(sorted(os.listdir('/dev')), os.listdir('/tmp'))")
    assert shown == (
        b"['fd', 'full', 'null', 'random', 'shm', 'stderr', 'stdin', 'stdout', 'urandom', 'zero']"
        b" ['main.py']\n"
    )
    assert await run("import os; print({'etc', 'home', 'sys', 'var'} & {*os.listdir('/')})") == (
        b"set()\n"
    )


async def test_this_package_is_empty_for_programs_if_it_is_installed_beside_them(monkeypatch):
    # A folder of the standard library stands for the package.
    folder = Path(wsgiref.__file__).resolve().parent
    monkeypatch.setattr(launch, "PACKAGE", folder)
    source = f"""
import os
print(os.listdir({str(folder)!r}), "json" in os.listdir({str(folder.parent)!r}))
try: open({str(folder / "new")!r}, "w")
except OSError: print("refused")
"""
    assert await run(source) == b"[] True\nrefused\n"


def test_only_a_package_below_a_folder_of_programs_is_hidden(monkeypatch):
    monkeypatch.setattr(launch, "PACKAGE", Path("/opt/python/lib/ludic_gym"))
    assert launch.hidden_folders("/opt/python") == ["/opt/python/lib/ludic_gym"]
    assert launch.hidden_folders("/opt/pyth") == []
    monkeypatch.setattr(launch, "PACKAGE", Path("/usr/lib/python3/ludic_gym"))
    assert launch.hidden_folders("/opt/python") == ["/usr/lib/python3/ludic_gym"]
