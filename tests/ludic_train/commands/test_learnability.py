import pytest

from ludic_gym.audit.subject import AuditSubject
from ludic_train.commands.learnability import evaluations, learnability, verdict


def test_an_improvement_is_more_than_three_standard_errors():
    # At 10 % to 20 % of 200: the mean is 15 %, the error sqrt(2 * 0.15 * 0.85 / 200) = 3.57 %.
    assert verdict([(0.1, 0.0), (0.2, 0.0)], 200)[0] == "unknown"
    assert verdict([(0.1, 0.0), (0.21, 0.0)], 200)[0] == "pass"


def test_what_does_not_improve_is_said_and_no_fault():
    outcome, summary, evidence = verdict([(0.0, -1.0), (0.0, -0.5)], 200)
    assert outcome == "unknown"
    assert summary.startswith("no improvement: success 0.0% -> 0.0%, reward -1 -> -0.5")
    assert evidence == {"success": [0.0, 0.0], "reward": [-1.0, -0.5]}


def test_evaluations_are_read_up_to_a_line_that_was_cut(tmp_path):
    metrics = tmp_path / "metrics.jsonl"
    assert evaluations(metrics) == []
    metrics.write_text(
        '{"update": 0, "eval/test/success": 0.1, "eval/test/reward": -0.5}\n'
        '{"update": 1, "loss": 2.0}\n{"update": 25, "eval/test/succ'
    )
    assert evaluations(metrics) == [(0.1, -0.5)]


def test_without_a_demonstrator_it_is_unknown(register):
    assert learnability(AuditSubject(env_id=register))[0] == "unknown"


@pytest.fixture
def register():
    import gymnasium as gym

    from ludic_gym.envs.core.base import TextEnv, end

    class Riddle(TextEnv):
        def start(self, options):
            return "?", ""

        def turn(self, action):
            return end(success=action == "x")

    gym.register("my/Riddle-v0", Riddle, order_enforce=False, disable_env_checker=True)
    yield "my/Riddle-v0"
    del gym.registry["my/Riddle-v0"]


@pytest.mark.slow
def test_a_tiny_model_learns_a_game_in_two_minutes():
    outcome, summary, _ = learnability(AuditSubject(env_id="ludic/GuessTheNumber-v0"))
    assert outcome == "pass", summary
