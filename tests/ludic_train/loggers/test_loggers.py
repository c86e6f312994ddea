import io
import logging
import math
from functools import partial

import pytest
import torch
from rich.console import Console

from ludic_train.errors import MetricError
from ludic_train.loggers.console import ConsoleLogger, readable, sparkline
from ludic_train.loggers.loggers import (
    JSONLLogger,
    MultiLogger,
    imitated_until,
    rank_0_logger,
    read_metrics,
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run" / "metrics.jsonl"


def write(path, *records):
    logger = JSONLLogger(path)
    for update, metrics in records:
        logger.log(update, metrics)
    logger.close()


def test_each_line_is_on_disk_at_once(path):
    logger = JSONLLogger(path)
    logger.log(1, {"reward": 0.1 + 0.2, "loss": -1})
    assert path.read_text() == '{"update": 1, "reward": 0.30000000000000004, "loss": -1.0}\n'
    logger.close()


def test_what_was_logged_is_read_back(path):
    write(path, (1, {"a": 0.1 + 0.2}), (2, {"a": 1.0}), (2, {"eval/b": 2.0}))
    assert read_metrics(path) == [
        {"update": 1.0, "a": 0.1 + 0.2},
        {"update": 2.0, "a": 1.0, "eval/b": 2.0},
    ]


@pytest.mark.parametrize(
    ("value", "text"), [(math.nan, '"nan"'), (math.inf, '"inf"'), (-math.inf, '"-inf"')]
)
def test_numbers_that_json_lacks_are_strings_that_float_reads(path, value, text):
    write(path, (1, {"loss": value}))
    assert path.read_text() == f'{{"update": 1, "loss": {text}}}\n'
    assert read_metrics(path)[0]["loss"] == pytest.approx(value, nan_ok=True)


def test_a_resumed_run_continues_its_file_and_its_later_numbers_count(path):
    write(path, (1, {"a": 1.0}), (2, {"a": 2.0}), (3, {"a": 3.0}))
    write(path, (2, {"a": 20.0}), (3, {"a": 30.0}))
    assert [record["a"] for record in read_metrics(path)] == [1.0, 20.0, 30.0]


def test_the_torn_line_of_a_killed_run_is_cut_off(path):
    write(path, (1, {"a": 1.0}))
    with path.open("a") as file:
        file.write('{"update": 2, "a')
    assert read_metrics(path) == [{"update": 1.0, "a": 1.0}]
    write(path, (2, {"a": 2.0}))
    assert [record["a"] for record in read_metrics(path)] == [1.0, 2.0]


@pytest.mark.parametrize("line", ["nonsense", "[1]", '{"a": 1}', '{"update": 1, "a": "much"}'])
def test_a_line_that_is_no_record_is_refused_with_its_number(path, line):
    write(path, (1, {"a": 1.0}))
    with path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(MetricError, match=r"metrics\.jsonl:2"):
        read_metrics(path)


def test_a_metric_cannot_be_called_update(path):
    logger = JSONLLogger(path)
    with pytest.raises(MetricError, match="update"):
        logger.log(1, {"update": 2.0})
    logger.close()


class Clock:
    """Seconds that pass when told to."""

    now = 0.0

    def __call__(self):
        return self.now


def console_of(*, terminal, width=100):
    out = io.StringIO()
    return out, Console(
        file=out,
        width=width,
        height=40,
        force_terminal=terminal,
        color_system=None,
        legacy_windows=False,
    )


def test_a_pipe_gets_plain_lines_for_the_first_the_last_and_every_tenth_update():
    out, console = console_of(terminal=False)
    logger = ConsoleLogger(23, title="grpo", console=console, clock=Clock())
    for update in range(1, 24):
        logger.log(update, {"reward": update / 8, "[loss]": 0.0})
    logger.close()
    assert out.getvalue().splitlines() == [
        "grpo 1/23  reward 0.125  [loss] 0",
        "grpo 10/23  reward 1.25  [loss] 0",
        "grpo 20/23  reward 2.5  [loss] 0",
        "grpo 23/23  reward 2.875  [loss] 0",
    ]


def test_updates_that_imitate_have_the_word_beside_their_number():
    out, console = console_of(terminal=False)
    logger = ConsoleLogger(3, every=1, console=console, clock=Clock())
    logger.log(1, {"nll": 0.5, "imitation": 1.0})
    # An evaluation is of the updates before it.
    logger.log(1, {"eval/won": 0.25})
    logger.log(2, {"reward": 0.5, "imitation": 0.0})
    assert out.getvalue().splitlines() == [
        "training 1/3 imitation  nll 0.5",
        "training 1/3 imitation  eval/won 0.25",
        "training 2/3  reward 0.5",
    ]


def test_imitation_ends_at_the_last_update_that_is_marked():
    marked = [{"update": 1, "imitation": 1.0}, {"update": 2, "imitation": 0.0}, {"update": 3}]
    assert imitated_until(marked) == 1
    assert imitated_until(marked[1:]) == 0


def test_time_left_is_the_pace_of_the_updates_after_the_first():
    clock, (out, console) = Clock(), console_of(terminal=False)
    logger = ConsoleLogger(10, every=1, console=console, clock=clock)
    clock.now = 100.0
    logger.log(3, {})
    assert logger.seconds_left() is None
    # resumed at 3: two updates in 8 s leave five more, 20 s
    clock.now = 108.0
    logger.log(5, {})
    assert logger.seconds_left() == 20.0
    assert out.getvalue().splitlines()[-1].rstrip() == "training 5/10  0:00:20 left"


@pytest.mark.parametrize("width", [30, 60, 120])
def test_a_terminal_gets_panels_with_the_latest_numbers_history_and_progress(width):
    out, console = console_of(terminal=True, width=width)
    logger = ConsoleLogger(4, title="grpo", console=console, clock=Clock())
    logger.log(1, {"reward": 0.0, "loss": 0.5})
    logger.log(2, {"reward": 1.0, "seconds/update": 123456.0})
    logger.close()
    last = out.getvalue()[out.getvalue().rindex("╭") :]
    for part in ("grpo", "2/4", "▁█", "loss", "0.5", "seconds", "update", "123,456"):
        assert part in last
    assert max(map(len, last.split("\n")[:-1])) <= min(width, 100)


def test_a_logger_that_fails_is_reported_once_and_the_others_go_on(path, caplog):
    class Broken:
        calls = 0

        def log(self, update, metrics):
            self.calls += 1
            raise OSError("disk full")

        def close(self):
            raise AssertionError("left out after its failure")

    broken, good = Broken(), JSONLLogger(path)
    both = MultiLogger(broken, good)
    with caplog.at_level(logging.ERROR):
        both.log(1, {"a": 1.0})
        both.log(2, {"a": 2.0})
    both.close()
    assert [record["a"] for record in read_metrics(path)] == [1.0, 2.0]
    assert broken.calls == 1
    assert "Broken failed" in caplog.text
    assert "disk full" in caplog.text


@pytest.mark.parametrize(
    ("values", "width", "bars"),
    [
        ([], 5, ""),
        ([1.0], 5, "▁"),
        ([2.0, 2.0], 5, "▁▁"),
        ([0, 1, 2, 3, 4, 5, 6, 7], 8, "▁▂▃▄▅▆▇█"),
        # shares (0, 0), (7, 7), (3, 4): means 0, 7, 3.5
        ([0, 0, 7, 7, 3, 4], 3, "▁█▅"),
        ([0.0, math.nan, 1.0], 3, "▁?█"),
    ],
)
def test_sparkline_by_hand(values, width, bars):
    assert sparkline(values, width) == bars


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.123456, "0.1235"),
        (-12.5, "-12.5"),
        (0.0005, "5.00e-04"),
        (25_000.4, "25,000"),
        (3e12, "3.00e+12"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
    ],
)
def test_numbers_are_short(value, text):
    assert readable(value) == text


@pytest.mark.parametrize("rank", [0, 1])
def test_loggers_are_made_and_called_on_rank_0_alone(rank, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: rank)
    paths = [tmp_path / "a", tmp_path / "b"]
    logger = rank_0_logger(*(partial(JSONLLogger, path) for path in paths))
    logger.log(1, {"x": 2.0})
    logger.close()
    assert [path.exists() for path in paths] == [rank == 0] * 2
    if rank == 0:
        assert [read_metrics(path) for path in paths] == [[{"update": 1.0, "x": 2.0}]] * 2
