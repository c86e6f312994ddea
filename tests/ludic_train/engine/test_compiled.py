"""The compilation of the kernels of a CPU, and the warning where it fails."""

import logging
import shutil

import pytest

from ludic_train.engine import cpu_kernels

NEEDS_COMPILER = pytest.mark.skipif(not cpu_kernels._compiler(), reason="there is no C++ compiler")


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    """Compiles without optimization, in a third of the time."""
    monkeypatch.setattr(cpu_kernels, "FLAGS", (*cpu_kernels.FLAGS, "-O0"))


@NEEDS_COMPILER
def test_they_are_compiled_once_for_all_processes_of_a_user(load, monkeypatch, tmp_path):
    assert load() is not None
    (kept,) = (tmp_path / "ludic").iterdir()
    assert kept.suffix == ".so"
    monkeypatch.setattr(cpu_kernels.subprocess, "run", None)
    assert load() is not None


@NEEDS_COMPILER
def test_broken_ones_are_compiled_anew(load, monkeypatch, tmp_path):
    load()
    (kept,) = (tmp_path / "ludic").iterdir()
    # Of another user, because a process keeps what it has loaded from a path.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    broken = tmp_path / "other" / "ludic" / kept.name
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"cut")
    assert load() is not None
    assert broken.read_bytes() == kept.read_bytes()


@NEEDS_COMPILER
def test_each_processor_has_its_own(load, monkeypatch, tmp_path):
    load()
    monkeypatch.setattr(cpu_kernels, "_processor", lambda: b"another")
    assert load() is not None
    assert len(list((tmp_path / "ludic").iterdir())) == 2


@NEEDS_COMPILER
def test_they_are_compiled_where_nothing_can_be_kept(load, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert load() is not None


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (None, "found no C++ compiler; install g++"),
        ("no-such-compiler -m64", "no-such-compiler -m64: [Errno 2]"),
        ("sh -c 'echo its own words >&2; exit 1'", "failed with 'its own words'"),
    ],
)
def test_without_a_compiler_torch_goes_on_and_a_warning_says_so(
    command, said, load, monkeypatch, caplog
):
    monkeypatch.delenv("CXX", raising=False)
    if command is None:
        monkeypatch.setattr(shutil, "which", lambda name: None)
    else:
        monkeypatch.setenv("CXX", command)
    with caplog.at_level(logging.WARNING):
        assert load() is None
    (record,) = caplog.records
    assert "samples by torch's functions alone" in record.getMessage()
    assert said in record.getMessage()
