"""Forked programs behave as programs that are started."""

import os
import signal
import subprocess
import sys
import time

import forked
import pytest

PROGRAMS = {
    "exit code and outputs": "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)",
    "uncaught error": "raise ValueError('wrong')",
    "words": "import os, sys; print(sys.argv[1:], os.getcwd(), os.environ['WORD'], __name__)",
    "exit hooks": "import atexit; atexit.register(print, 'bye')",
    "threads are waited for": ("from threading import Timer; Timer(0.2, print, (1,)).start()"),
    "negative exit code": "raise SystemExit(-2)",
    "text for exit": "raise SystemExit('a remedy')",
    "killed": "import os; os.kill(os.getpid(), 9)",
    "interrupted": "import os; os.kill(os.getpid(), 2); import time; time.sleep(9)",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_forked_program_ends_like_a_started_one(name, tmp_path):
    script = tmp_path / "program.py"
    script.write_text(PROGRAMS[name])
    options = {"cwd": tmp_path, "env": {**os.environ, "WORD": "é"}, "timeout": 60}
    started = subprocess.run(
        [sys.executable, str(script), "a", "b c"],
        capture_output=True,
        text=True,
        check=False,
        **options,
    )
    one = forked.run([str(script), "a", "b c"], **options)
    assert (one.returncode, one.stdout) == (started.returncode, started.stdout)
    assert one.stderr.splitlines()[-1:] == started.stderr.splitlines()[-1:]


def test_a_signal_reaches_it_and_its_output_can_be_read_meanwhile(tmp_path):
    script = tmp_path / "program.py"
    script.write_text("import time\nprint('ready', flush=True)\ntime.sleep(60)")
    program = forked.Python([str(script)], stdout=subprocess.PIPE)
    assert program.stdout.readline() == "ready\n"
    assert program.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        program.wait(0.05)
    begin = time.monotonic()
    program.send_signal(signal.SIGTERM)
    assert program.wait(30) == -signal.SIGTERM
    assert time.monotonic() - begin < 30
    program.stdout.close()
