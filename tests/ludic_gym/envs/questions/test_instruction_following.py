import gymnasium as gym
import numpy as np
import pytest

from ludic_gym.envs.questions.instruction_following import (
    CLASHES,
    TOPICS,
    draw_constraints,
    model_text,
)
from ludic_gym.errors import NoOracle
from ludic_gym.graders.constraints import KINDS, Constraint, constraints_kept, read_constraints

ID = "ludic/InstructionFollowing-v0"


@pytest.mark.long
@pytest.mark.parametrize("count", range(1, 7))
def test_constraints_that_are_drawn_together_can_be_kept_together(count):
    seen = set()
    for seed in range(150):
        constraints = draw_constraints(np.random.default_rng(seed), count)
        kinds = {constraint.kind for constraint in constraints}
        assert len(kinds) == count
        assert not any(clash <= kinds for clash in CLASHES)
        assert all(constraints_kept(model_text(constraints), constraints))
        seen |= kinds
    assert seen == set(KINDS)


def test_what_cannot_be_kept_has_no_model_text():
    with pytest.raises(NoOracle, match="no text is known"):
        model_text([Constraint("words_at_most", 2), Constraint("words_at_least", 5)])


def asked(**kwargs):
    """An episode in which no commas and at most three words are asked for."""
    env = gym.make(ID, **kwargs).unwrapped
    for seed in range(1000):
        text, _ = env.reset(seed=seed)
        if {c.kind for c in read_constraints(env.question.truth)} == {"no_commas", "title"}:
            return env, text
    raise AssertionError("no such episode")


def test_the_question_has_a_topic_and_the_rules():
    _, text = asked(constraints=2)
    assert text.startswith("Write ")
    assert sorted(text.splitlines()[1:]) == [
        "- Do without any commas.",
        "- Give it a title in double angle brackets, such as <<my day>>.",
    ]


@pytest.mark.parametrize(
    ("kwargs", "action", "reward", "parts"),
    [
        ({}, "<<a>> {}", 1.0, {"reward/kept": 1.0}),
        ({}, "<<a>>, {}", 0.0, {"reward/kept": 0.0}),
        ({"loose": True}, "Yes, sure!\n<<a>> {}", 1.0, {"reward/kept": 1.0}),
        (
            {"reward": "fraction"},
            "<<a>>, {}",
            0.5,
            {"reward/no_commas": 0.0, "reward/title": 0.5},
        ),
        # A text on no topic keeps nothing.
        ({"reward": "fraction"}, "<<a>> b", 0.0, {"reward/no_commas": 0.0, "reward/title": 0.0}),
        ({"reward": "fraction"}, "", 0.0, {"reward/no_commas": 0.0, "reward/title": 0.0}),
        (
            {"reward": "fraction"},
            "- Do without any commas.",
            0.0,
            {"reward/no_commas": 0.0, "reward/title": 0.0},
        ),
    ],
)
def test_rewards_by_hand(kwargs, action, reward, parts):
    env, _ = asked(constraints=2, **kwargs)
    words = " ".join(TOPICS[env.about["topic"]][:2])
    _, earned, terminated, _, info = env.step(action.format(words))
    assert (earned, terminated, info["success"]) == (reward, True, reward == 1.0)
    assert {key: value for key, value in info.items() if key.startswith("reward/")} == parts
