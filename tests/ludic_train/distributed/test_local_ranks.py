"""`ludic train --gpus N`: the processes that it starts, without a training."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from ludic_gym.errors import ConfigError
from ludic_train.distributed import local_ranks
from ludic_train.distributed.local_ranks import check_gpus, run_ranks


@pytest.fixture
def program(monkeypatch):
    """`program(code)`: what each rank runs in place of `ludic`."""

    def runs(code):
        monkeypatch.setattr(local_ranks, "LUDIC", (sys.executable, "-c", f"import os, sys\n{code}"))
        for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK", "OMP_NUM_THREADS"):
            monkeypatch.delenv(name, raising=False)

    return runs


def test_each_rank_gets_its_number_and_the_arguments(program, tmp_path):
    names = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"]
    program(
        f"values = [os.environ[name] for name in {names}]\n"
        "open(os.path.join(sys.argv[1], values[0]), 'w').write(' '.join(values))"
    )
    assert run_ranks([str(tmp_path)], 3) == 0
    found = [(tmp_path / str(rank)).read_text() for rank in range(3)]
    assert found == ["0 0 3 3", "1 1 3 3", "2 2 3 3"]


def test_a_rank_that_fails_ends_the_others(program, monkeypatch):
    monkeypatch.setattr(local_ranks, "LAST_WORDS_S", 0.5)
    program("import time\nsys.exit(7) if os.environ['RANK'] == '1' else time.sleep(100)")
    started = time.monotonic()
    # Rank 0 was ended by SIGTERM.
    assert run_ranks([], 2) in (7, 128 + signal.SIGTERM)
    assert time.monotonic() - started < 30


def test_the_exit_code_is_that_of_rank_0(program):
    program("sys.exit(2 if os.environ['RANK'] == '0' else 1)")
    assert run_ranks([], 2) == 2


def test_a_signal_reaches_each_rank_once(program, tmp_path):
    program(
        "import signal, time\n"
        "path = os.path.join(sys.argv[1], os.environ['RANK'])\n"
        "count = []\n"
        "signal.signal(signal.SIGINT, lambda *_: count.append(1))\n"
        "open(path, 'w').close()\n"
        "while not count: time.sleep(0.01)\n"
        "time.sleep(0.5)\n"
        "open(path, 'w').write(str(len(count)))\n"
        "sys.exit(130)"
    )

    def interrupt():
        while len(list(tmp_path.iterdir())) < 2:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    assert run_ranks([str(tmp_path)], 2) == 130
    assert [path.read_text() for path in tmp_path.iterdir()] == ["1", "1"]


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone tells of a parent's end")
def test_ranks_are_stopped_in_order_where_the_launcher_is_killed(tmp_path):
    rank = (
        "import os, signal, sys, time\n"
        f"path = os.path.join({str(tmp_path)!r}, os.environ['RANK'])\n"
        "signal.signal(signal.SIGTERM, lambda *_: (open(path, 'w').write('saved'), sys.exit()))\n"
        "open(path, 'w').close()\n"
        "time.sleep(100)"
    )
    program = (
        "import sys\nfrom ludic_train.distributed import local_ranks\n"
        f"local_ranks.LUDIC = (sys.executable, '-c', {rank!r})\n"
        "local_ranks.run_ranks([], 2)"
    )
    launcher = subprocess.Popen([sys.executable, "-c", program])
    deadline = time.monotonic() + 60
    while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    launcher.kill()
    launcher.wait()
    while time.monotonic() < deadline and any(not p.read_text() for p in tmp_path.iterdir()):
        time.sleep(0.05)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["saved", "saved"]


def test_the_number_of_ranks_is_checked(monkeypatch):
    with pytest.raises(ConfigError, match="gpus=0"):
        check_gpus(0)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    check_gpus(2)
    with pytest.raises(ConfigError, match="gpus=4, but 2 ranks"):
        check_gpus(4)
