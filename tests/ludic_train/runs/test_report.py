import io
import json

import pytest
from rich.console import Console

from ludic_gym.rollout.transcript import rollout_text
from ludic_gym.types import Completion, Decision, Rollout, Step, Task
from ludic_train.loggers.loggers import read_metrics
from ludic_train.runs.evaluation import report, time_split


def game():
    said = Completion(text="5", finish_reason="stop")
    first = Step(
        observation="1 2 3", decision=Decision(action="5", completions=(said,)), reward=0.0
    )
    last = Step(
        observation="1 O 3",
        decision=Decision(action="9"),
        reward=-1.0,
        terminated=True,
        info={"outcome": "loss", "success": False},
    )
    task = Task(env_id="ludic/TicTacToe-v0", kwargs={"opponent": "perfect"}, seed=7)
    return Rollout(task=task, steps=(first, last), final_observation="O O O")


@pytest.fixture
def out(tmp_path):
    lines = [
        {"update": 1, "reward": 0.25, "seconds/next_batch": 2.0, "seconds/update": 1.0},
        {"update": 2, "reward": 0.75, "seconds/update": 3.0, "seconds/publish": 2.0},
        {"update": 2, "seconds/evaluate": 4.0},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "metrics.jsonl").write_text(text)
    return tmp_path


def test_a_transcript_shows_what_was_seen_said_and_earned():
    assert rollout_text(game()) == (
        "ludic/TicTacToe-v0 {'opponent': 'perfect'} seed 7\n\n"
        "1 2 3\n> 5\n\n1 O 3\n> 9\n\nO O O\nloss, reward -1"
    )


def test_seconds_are_added_up_by_phase(out):
    split = time_split(read_metrics(out / "metrics.jsonl"))
    assert split == {
        "sampling and playing": 2.0,
        "updates": 4.0,
        "publishing params": 2.0,
        "evaluation": 4.0,
    }


def test_a_curve_without_a_number_is_left_out(out):
    console = Console(record=True, width=100, file=io.StringIO())
    shown = {"results": {}, "games": [], "console": console}
    report(out, curves=["eval/test/reward", "reward"], **shown)
    assert "eval/test" not in console.export_text()
    (out / "curve.png").unlink()
    report(out, curves=["eval/test/reward"], **shown)
    assert not (out / "curve.png").exists()


def test_the_report_prints_shares_of_time_and_leaves_files(out):
    console = Console(record=True, width=100, file=io.StringIO())
    report(
        out,
        results={"perfect/draw": 0.995},
        games=[game()],
        curves=["reward"],
        console=console,
    )
    text = console.export_text()
    assert "0.995" in text
    assert "33%" in text
    assert "loss, reward -1" in text
    assert json.loads((out / "results.json").read_text()) == {"perfect/draw": 0.995}
    assert (out / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert "> 9" in (out / "games.txt").read_text()


def test_the_report_says_until_where_the_run_imitated(out):
    with (out / "metrics.jsonl").open("a") as file:
        file.write('{"update": 1, "imitation": 1.0}\n')
    console = Console(record=True, width=100, file=io.StringIO())
    report(out, results={}, games=[], curves=["reward"], console=console)
    assert "imitated until update 1, and" in console.export_text()
