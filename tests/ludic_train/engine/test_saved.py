import gymnasium as gym
import pytest

from ludic_gym.errors import ConfigError
from ludic_gym.harness import Harness, read_harness, write_harness
from ludic_gym.types import Sampling
from ludic_train.engine.client import policy_from_run
from ludic_train.errors import ModelNotFound
from ludic_train.models.chat_template import render_chat
from ludic_train.models.load import save_model

SAMPLING = Sampling(seed=0, max_tokens=6)


@pytest.fixture
def run_folder(tmp_path, model, tokenizer):
    save_model(model, tokenizer, tmp_path / "model")
    return tmp_path


@pytest.fixture
def env():
    return gym.Env()


async def decided(make_policy, env, sampling=SAMPLING):
    """The second decision of a dialog, and the first."""
    policy = make_policy(env)
    policy.reset("Be brief.")
    policy.observe("1")
    first = await policy.act(sampling)
    policy.observe("2")
    return await policy.act(sampling), first


def prompt(tokenizer, *messages):
    return tuple(
        render_chat(tokenizer, [{"role": role, "content": text} for role, text in messages])
    )


async def test_a_run_is_prompted_as_its_harness_says(run_folder, tokenizer, env):
    spec = Harness(context="latest", system_prompt="", reply_tokens=2)
    write_harness(run_folder, spec)
    second, first = await decided(policy_from_run(run_folder), env)
    assert first.completions[0].prompt_ids == prompt(tokenizer, ("user", "1"))
    assert second.completions[0].prompt_ids == prompt(tokenizer, ("user", "2"))
    assert second.completions[0].sampling.max_tokens == 2


async def test_who_asks_may_want_less_than_the_run_allows(run_folder, env):
    write_harness(run_folder, Harness(reply_tokens=100))
    second, _ = await decided(policy_from_run(run_folder), env)
    assert second.completions[0].sampling == SAMPLING


async def test_a_plain_model_sees_the_full_dialog_and_the_prompt_of_the_env(
    run_folder, tokenizer, env
):
    second, first = await decided(policy_from_run(str(run_folder / "model")), env)
    asked, went_on = first.completions[0], second.completions[0].prompt_ids
    assert asked.prompt_ids == prompt(tokenizer, ("system", "Be brief."), ("user", "1"))
    # The second prompt begins with the first and its reply, token by token, and closes the turn.
    so_far = asked.prompt_ids + asked.completion_ids
    assert went_on[: len(so_far)] == so_far
    assert tokenizer.decode(went_on[len(so_far) :]) == (
        "<|im_end|>\n<|im_start|>user\n2<|im_end|>\n<|im_start|>assistant\n"
    )


async def test_with_a_parser_the_action_is_inside_the_tag(run_folder, env):
    write_harness(run_folder, Harness(parser="xml:move", cut_off="keep"))
    second, _ = await decided(policy_from_run(run_folder), env)
    assert second.action is None
    assert "<move>" in second.feedback


async def test_policies_of_one_run_are_one_batch_and_repeat(run_folder, env):
    write_harness(run_folder, Harness())
    make_policy = policy_from_run(run_folder)
    one, other = make_policy(env), make_policy(env)
    assert one.policy.client is other.policy.client
    assert await decided(make_policy, env) == await decided(make_policy, env)


def test_what_is_written_is_what_is_read(tmp_path):
    spec = Harness(context="latest", system_prompt="Hi", parser="xml:a", reply_tokens=3)
    write_harness(tmp_path, spec)
    assert read_harness(tmp_path) == spec


@pytest.mark.parametrize("text", ["[]", '{"contxt": "full"}', "{", '{"context": "some"}'])
def test_a_harness_json_that_cannot_be_meant_is_refused(tmp_path, text):
    (tmp_path / "harness.json").write_text(text)
    with pytest.raises(ConfigError):
        read_harness(tmp_path)


def test_a_bound_below_one_token_is_refused():
    with pytest.raises(ConfigError, match="reply_tokens must be at least 1"):
        Harness(reply_tokens=0)


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(ModelNotFound, match="is no run folder"):
        policy_from_run(tmp_path)
    (tmp_path / "model").mkdir()
    with pytest.raises(ModelNotFound, match=r"has a model/ but no harness\.json"):
        policy_from_run(tmp_path)


@pytest.fixture
def cached_model(tmp_path, monkeypatch, model, tokenizer):
    """A model in the cache of the hub, as a download leaves it."""
    repository = tmp_path / "hub" / "models--org--tiny"
    save_model(model, tokenizer, repository / "snapshots" / "abc")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    # Read from the environment when the library is imported.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return "hf/org/tiny"


async def test_a_model_of_the_hub_is_taken_from_its_cache(cached_model, tokenizer, env):
    _, first = await decided(policy_from_run(cached_model), env)
    expected = prompt(tokenizer, ("system", "Be brief."), ("user", "1"))
    assert first.completions[0].prompt_ids == expected


@pytest.mark.parametrize("name", ["org/other", "/nowhere/model"])
def test_a_model_that_is_not_in_the_cache_is_refused_with_the_remedy(cached_model, name):
    with pytest.raises(ModelNotFound, match=f"to download it: hf download {name}"):
        policy_from_run(f"hf/{name}")


async def test_a_folder_may_have_the_prefix_of_the_hub(run_folder, env):
    write_harness(run_folder, Harness(reply_tokens=2))
    second, _ = await decided(policy_from_run(f"hf/{run_folder}"), env)
    assert second.completions[0].sampling.max_tokens == 2


def test_a_folder_with_a_name_of_that_prefix_is_a_folder(tmp_path, monkeypatch):
    (tmp_path / "hf" / "mine").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelNotFound, match="'hf/mine' is no run folder"):
        policy_from_run("hf/mine")
