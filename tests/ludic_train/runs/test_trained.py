"""The run that `lt.train` returns."""

import json

import pytest

import ludic_gym as lg
import ludic_train as lt
from ludic_train.runs.trained import curve_svg


@pytest.fixture
def folder(tmp_path):
    out = tmp_path / "a <run>"
    out.mkdir()
    (out / "results.json").write_text('{"test/success": 0.5, "test/reward": -0.25}')
    lines = [{"update": 0, "eval/test/success": 0.1}, {"update": 1, "reward": 0.0}]
    lines += [{"update": 2, "reward": 0.5}, {"update": 2, "eval/test/success": 0.4}]
    (out / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return out


def test_a_finished_run_is_its_final_evaluation_by_name(folder):
    run = lt.TrainedRun(folder)
    assert (run["test/success"], len(run), dict(run)["test/reward"]) == (0.5, 2, -0.25)
    assert run == {"test/success": 0.5, "test/reward": -0.25}


def test_its_curves_are_lists_in_the_order_of_the_updates(folder):
    curves = lt.TrainedRun(folder).curves
    assert curves == {"reward": [0.0, 0.5], "eval/test/success": [0.1, 0.4]}


def test_a_notebook_shows_its_reward_and_its_results(folder):
    page = lt.TrainedRun(folder)._repr_html_()
    # From the bottom left to the top right.
    assert 'points="0.0,90.0 320.0,0.0"' in page
    assert "reward: 0.5 (from 0 to 0.5, 2 updates)" in page
    assert "<td>test/reward</td><td>-0.25</td>" in page
    assert "a &lt;run&gt;" in page
    assert curve_svg("flat", [1.0, 1.0, 1.0]).count(",90.0") == 3


def test_a_folder_without_results_is_refused(tmp_path):
    with pytest.raises(lg.ConfigError, match="holds no finished run"):
        lt.TrainedRun(tmp_path)


@pytest.mark.long
def test_its_model_is_evaluated_on_its_tasks_and_on_others(tmp_path):
    run = lt.train(
        "ludic/Arithmetic-v0", out=tmp_path / "run", algo=lt.grpo(filter=None),
        eval_kwargs={"digits": 1}, demonstrations=150, sft_updates=1, updates=1, groups=1,
        group_size=2, eval_episodes=2, final_episodes=2, max_tokens=4, preflight=False,
    )  # fmt: skip
    assert (run.model / "config.json").is_file()
    own = run.evaluate(episodes=3, progress=False)
    assert own.played[0].task.kwargs == {"digits": 1}
    assert {e.task.sampling.max_tokens for e in own.played} == {4}
    other = run.evaluate("ludic/GuessTheNumber-v0", episodes=2, progress=False)
    assert other.played[0].task.env_id == "ludic/GuessTheNumber-v0"
