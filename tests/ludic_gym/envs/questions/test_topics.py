import gymnasium as gym
import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.envs.questions.instruction_following import (
    ENDS,
    FILLER,
    STARTS,
    TOPICS,
    WORDS,
    is_on_topic,
    model_text,
)
from ludic_gym.graders.constraints import read_constraints


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
