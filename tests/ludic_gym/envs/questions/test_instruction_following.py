"""InstructionFollowing: topics, constraints and rewards."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.envs.questions.instruction_following import (
    CLASHES,
    ENDS,
    FILLER,
    STARTS,
    TOPICS,
    WORDS,
    draw_constraints,
    is_on_topic,
    model_text,
)
from ludic_gym.errors import NoOracle
from ludic_gym.graders.constraints import KINDS, Constraint, constraints_kept, read_constraints


def test_a_template_that_keeps_every_rule_is_off_topic():
    env = gym.make("ludic/InstructionFollowing-v0").unwrapped
    for seed in range(30):
        env.reset(seed=seed)
        _, reward, *_, info = env.step(model_text(read_constraints(env.question.truth)))
        assert (reward, info["rule"], info["success"]) == (0.0, "off topic", False)


def test_the_best_action_is_on_topic():
    env = gym.make("ludic/InstructionFollowing-v0").unwrapped
    seen = set()
    for seed in range(60):
        _, info = env.reset(seed=seed)
        seen.add(info["topic"])
        _, reward, *_, info = env.step(env.oracle_action())
        assert (reward, info["success"]) == (1.0, True)
    assert len(seen) > 15


@pytest.mark.parametrize("topic", TOPICS)
def test_the_task_itself_is_not_on_its_topic(topic):
    assert not is_on_topic(f"Write a short report about {topic}. Here is a letter.", topic)


@pytest.mark.long
def test_no_fixed_text_is_about_more_than_a_few_topics():
    everything = " ".join(stem for stems in TOPICS.values() for stem in stems)
    assert not any(is_on_topic(everything, topic) for topic in TOPICS)
    pairs = " ".join(stem for stems in TOPICS.values() for stem in stems[:2])
    assert sum(is_on_topic(pairs, topic) for topic in TOPICS) == 0
    three = " ".join(stem for stems in list(TOPICS.values())[:3] for stem in stems[:2])
    assert sum(is_on_topic(three, topic) for topic in TOPICS) <= 3


def test_words_of_topics_are_not_those_of_constraints_and_templates():
    fixed = {*WORDS, *FILLER, *" ".join((*ENDS, *STARTS)).lower().split()}
    stems = {stem for each in TOPICS.values() for stem in each}
    assert [word for word in fixed if any(word.startswith(stem) for stem in stems)] == []


@pytest.mark.parametrize(
    ("topic", "text"),
    [
        ("baking bread", "Mix flour and water. Wait for a day. Bake it until it sounds hollow."),
        ("a lost umbrella", "Somebody left it on the bus. It is black with a wooden handle."),
        ("a broken lift", "Take the stairs to your floor. A technician comes tomorrow."),
        ("saving water", "Close the tap while you brush your teeth, and take short showers."),
        ("keeping a diary", "Each evening I write one page about the thoughts of the day."),
    ],
)
def test_a_short_text_on_a_topic_is_recognised(topic, text):
    assert is_on_topic(text, topic)
    assert [other for other in TOPICS if is_on_topic(text, other)] == [topic]


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


def asked():
    """An episode in which no commas and a title are asked for."""
    env = gym.make(ID, constraints=2).unwrapped
    for seed in range(1000):
        text, _ = env.reset(seed=seed)
        if {c.kind for c in read_constraints(env.question.truth)} == {"no_commas", "title"}:
            return env, text
    raise AssertionError("no such episode")


@pytest.mark.parametrize(
    ("action", "reward"),
    [("<<a>> {}", 1.0), ("<<a>>, {}", 0.0), ("<<a>> b", 0.0), ("", 0.0)],
)
def test_rewards_by_hand(action, reward):
    env, _ = asked()
    words = " ".join(TOPICS[env.about["topic"]][:2])
    _, earned, terminated, _, info = env.step(action.format(words))
    assert (earned, terminated, info["success"]) == (reward, True, reward == 1.0)
    assert info["reward/kept"] == reward
