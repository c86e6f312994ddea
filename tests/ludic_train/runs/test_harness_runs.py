"""Runs that train with a harness, and their models, which are prompted in the same way."""

import asyncio
import tomllib

import pytest

import ludic_gym as lg
import ludic_train as lt
from ludic_gym.errors import ConfigError

SMALL = {
    "demonstrations": 130,
    "sft_updates": 3,
    "updates": 1,
    "groups": 2,
    "group_size": 4,
    "eval_episodes": 1,
    "final_episodes": 1,
    "preflight": False,
    "device": "cpu",
}


def think(client, env):
    """A policy of the user's own."""
    return lg.Parsed(lg.ChatPolicy(client), lg.xml_tag_parser("answer", success_reward=0.1))


def train(out, **settings):
    return lt.train("ludic/GuessTheNumber-v0", out=out, **{**SMALL, **settings})


@pytest.mark.long
@pytest.mark.parametrize("name", ["think-tag", "boxed", "react", "truncated-thinking"])
def test_a_run_with_a_named_harness_saves_it_and_demonstrates_its_form(tmp_path, name):
    train(tmp_path / "run", harness=name)
    saved = lg.read_harness(tmp_path / "run")
    assert saved.over(None) == lg.HARNESSES[name].over(saved)
    settings = tomllib.loads((tmp_path / "run" / "config.toml").read_text())
    assert settings["harness"] == lg.HARNESSES[name].as_data()
    assert settings["demonstrator"]["reply"] == lg.HARNESSES[name].reply_form


def test_parts_are_settings_of_a_run(tmp_path):
    train(tmp_path / "run", parser="xml:move", cut_off="keep", attempts=2)
    saved = lg.read_harness(tmp_path / "run")
    assert (saved.parser, saved.cut_off, saved.attempts) == ("xml:move", "keep", 2)
    # As a model that is made from nothing is prompted, unless the harness says otherwise.
    assert (saved.context, saved.system_prompt) == ("latest", "")


def test_a_run_with_objects_trains_and_its_model_asks_for_them_again(tmp_path):
    parser = lg.compose_parsers(lg.think_prefix_parser(), lg.xml_tag_parser("move"))
    harness = lg.Harness(
        parser=parser, context=lg.TruncatedThinkingContext, form="<think></think><move>{}</move>"
    )
    train(tmp_path / "run", harness=harness)
    with pytest.raises(ConfigError, match="was an object in Python"):
        lg.evaluate("ludic/GuessTheNumber-v0", str(tmp_path / "run"), episodes=1, progress=False)
    again = lg.evaluate(
        "ludic/GuessTheNumber-v0",
        str(tmp_path / "run"),
        harness=harness,
        episodes=4,
        progress=False,
        sampling=lg.Sampling(max_tokens=32),
    )
    assert (again.episodes, again.errors) == (4, ())


def test_a_run_with_a_factory_of_policies_trains(tmp_path):
    train(tmp_path / "run", harness=think)
    assert lg.read_harness(tmp_path / "run").factory == "in-python"


@pytest.mark.long
async def test_the_model_of_a_run_is_prompted_as_it_was_trained(tmp_path):
    await asyncio.to_thread(train, tmp_path / "run", harness="think-tag")
    async with lg.model(str(tmp_path / "run")) as make_policy:
        policy = make_policy(None)
        policy.reset("Guess.")
        policy.observe("A number?")
        decision = await policy.act(lg.Sampling(max_tokens=200))
    # The limit of the run holds, whatever a request says.
    assert (
        len(decision.completions[0].completion_ids)
        <= lg.read_harness(tmp_path / "run").reply_tokens
    )


def test_what_contradicts_itself_is_refused_before_anything_is_loaded(tmp_path):
    with pytest.raises(ConfigError, match="no harness 'thinktag'"):
        train(tmp_path / "run", harness="thinktag")
    with pytest.raises(ConfigError, match="a success pays 1"):
        train(tmp_path / "run", format_bonus=2.0, parser="boxed")
