import pytest
import torch
from chat_families import FAMILIES, family_tokenizer

import ludic_gym  # noqa: F401 - registers the environments
from ludic_gym.contexts import FullDialog, TruncatedThinkingContext
from ludic_gym.parsers import xml_tag_parser
from ludic_gym.policies.chat import ChatPolicy
from ludic_gym.policies.wrappers import Parsed
from ludic_gym.prompts import ExactPrompts
from ludic_gym.rollout.episodes import run_episodes
from ludic_gym.types import Completion, Sampling, Task
from ludic_train.algorithms.presets import sft
from ludic_train.engine.client import LocalChatClient
from ludic_train.models.chat_profile import chat_profile, text_ids
from ludic_train.models.chat_template import chat_renderer, dialog_rollout, render_chat
from ludic_train.models.head import action_logprobs
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.rows import rows_from, trajectory_from
from ludic_train.trainer.microbatches import plan_update
from ludic_train.types import TokenLogprobs

TURNS = 5


async def played(client, context=None):
    """Twenty games of an untrained model, whose moves are never found: five turns each."""
    tasks = [
        Task(
            env_id="ludic/TicTacToe-v0",
            seed=i,
            sampling=Sampling(max_tokens=12, seed=i),
            max_turns=TURNS,
            attempts=TURNS + 1,
        )
        for i in range(20)
    ]

    def make_policy(env):
        shown = None if context is None else context()
        return Parsed(ChatPolicy(client, shown), xml_tag_parser("move"))

    episodes = [e async for e in run_episodes(tasks, make_policy)]
    assert [e.error for e in episodes] == [None] * 20
    return [e.rollouts[0] for e in episodes]


def model_and_tokenizer():
    tokenizer = make_tokenizer(["1 2 X\n4 O 6"])
    return make_tiny_model(tokenizer), tokenizer


async def test_the_turns_of_a_dialog_make_one_row_whatever_bytes_were_sampled():
    client = LocalChatClient(*model_and_tokenizer())
    rollouts = await played(client)
    trajectories = [trajectory_from(rollout) for rollout in rollouts]
    assert sum(len(t.completions) for t in trajectories) == 20 * TURNS
    assert [len(t.rows) for t in trajectories] == [1] * 20
    assert (client.prompts.extended, client.prompts.rewritten) == (20 * (TURNS - 1), 0)


async def test_a_context_that_rewrites_history_splits_rows_and_is_counted():
    client = LocalChatClient(*model_and_tokenizer())

    class Forgetful(FullDialog):
        def messages(self):
            system, *turns = super().messages()
            return [system, *turns[-3:]]

    rollouts = await played(client, Forgetful)
    # The second prompt of a game shows all of it; each later one has lost its beginning.
    assert client.prompts.extended == 20
    splits = sum(len(trajectory_from(rollout).rows) - 1 for rollout in rollouts)
    assert client.prompts.rewritten == splits == 20 * (TURNS - 2)


async def test_the_log_probs_of_merged_rows_are_those_of_the_trainer():
    model, tokenizer = model_and_tokenizer()
    rollouts = await played(LocalChatClient(model, tokenizer))
    items = rows_from(rollouts, sft())
    ((micro,),) = plan_update(items, token_budget=10**6)
    arrays = (micro.input_ids, micro.row, micro.column, micro.temperature)
    out: TokenLogprobs = action_logprobs(model, *map(torch.from_numpy, arrays))
    sampled = torch.from_numpy(micro.behavior_logprobs)
    torch.testing.assert_close(out.logprobs, sampled, atol=1e-5, rtol=0)


class Typed:
    """Replies with texts, as a model would sample them, to prompts of a template."""

    def __init__(self, made, replies):
        self.made, self.replies, self.calls = made, iter(replies), []
        self.prompts = ExactPrompts(chat_renderer(made))

    async def complete(self, messages, sampling, tools=()):
        text, end = next(self.replies), chat_profile(self.made).turn_end
        completion = Completion(
            text=text,
            finish_reason="stop",
            prompt_ids=self.prompts.token_ids(messages),
            completion_ids=(*text_ids(self.made, text), *end),
        )
        self.calls.append(completion)
        return completion


REPLIES = {
    "plain": ["A reply."] * 14,
    "thoughts": ["<think>\nHm.\n</think>\n\nA reply."] * 14,
    "a late thought": ["A reply."] * 9 + ["<think>\nHm.\n</think>\n\nA reply."] + ["A reply."] * 4,
}


@pytest.mark.parametrize("replies", REPLIES)
@pytest.mark.parametrize("family", FAMILIES)
async def test_prompts_of_every_family_are_those_of_whole_dialogs(family, replies):
    made = []
    for whole in (False, True):
        client = Typed(family_tokenizer(family), REPLIES[replies])
        client.prompts.renders_whole = whole
        policy = ChatPolicy(client)
        for turn in range(14):
            policy.observe(f"Turn {turn}: 1 + 1? {'<|im_end|>' * (turn == 0)}" + "so long " * 40)
            await policy.act(Sampling())
        policy.end()
        assert client.prompts.renders_whole == whole
        made.append(client.calls)

    assert made[0] == made[1]


@pytest.mark.filterwarnings("ignore:.*whole dialogs are rendered")
async def test_a_template_that_moves_a_long_system_prompt_gets_whole_dialogs():
    made = []
    for whole in (False, True):
        client = Typed(family_tokenizer("mistral"), ["A reply."] * 14)
        client.prompts.renders_whole = whole
        policy = ChatPolicy(client, system_prompt="Be brief. " * 30)
        policy.reset("")
        for turn in range(14):
            policy.observe(f"Turn {turn}: 1 + 1?")
            await policy.act(Sampling())
        assert client.prompts.renders_whole
        made.append(client.calls)

    assert made[0] == made[1]


# All that stands between the end of a reply and the next one.
BETWEEN = {
    "gemma": "\n<start_of_turn>user\nq<end_of_turn>\n<start_of_turn>model\n",
    "qwen base": "\n<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n",
    "llama 2": "<s>[INST] q [/INST]",
    "llama 3": "<|start_header_id|>user<|end_header_id|>\n\nq<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "qwen 3": "\n<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n",
    "qwen 3, no thoughts": "\n<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n"
    "<think>\n\n</think>\n\n",
    "mistral": "[INST] q[/INST]",
    "phi 3": "\n<|user|>\nq<|end|>\n<|assistant|>\n",
    "gpt-oss": "<|start|>user<|message|>q<|end|><|start|>assistant",
    "glm 4": "\nq<|assistant|>\n",
    "r1": "<｜User｜>q<｜Assistant｜><think>\n",
}


def text_of(made, ids):
    return made.decode(list(ids), clean_up_tokenization_spaces=False)


@pytest.mark.parametrize("reply", ["A reply.", "<think>\nHm.\n</think>\n\nA reply."])
@pytest.mark.parametrize("family", FAMILIES)
async def test_turns_are_one_row_whatever_the_template_does_to_earlier_ones(family, reply):
    client = Typed(family_tokenizer(family), [reply] * 3)
    policy = ChatPolicy(client)
    for _ in range(3):
        policy.observe("q")
        await policy.act(Sampling())
    first, *later = client.calls
    whole = first.prompt_ids + first.completion_ids
    for call in later:
        assert call.prompt_ids[: len(whole)] == whole
        assert text_of(client.made, call.prompt_ids[len(whole) :]) == BETWEEN[family]
        whole = call.prompt_ids + call.completion_ids
    assert (client.prompts.extended, client.prompts.rewritten) == (2, 0)


async def test_a_context_that_drops_thoughts_is_followed():
    client = Typed(family_tokenizer("qwen 3"), ["<think>\nHm.\n</think>\n\nA reply."] * 3)
    policy = ChatPolicy(client, TruncatedThinkingContext())
    policy.reset("")
    for _ in range(3):
        policy.observe("q")
        await policy.act(Sampling())
    assert "Hm." not in text_of(client.made, client.calls[-1].prompt_ids)
    assert client.prompts.extended == 0


@pytest.mark.parametrize("family", ["qwen 3", "qwen 3, no thoughts", "gpt-oss"])
async def test_an_episode_of_the_local_engine_is_one_row_in_every_family(family):
    tokenizer = family_tokenizer(family)
    client = LocalChatClient(make_tiny_model(tokenizer, hidden_size=32, num_layers=1), tokenizer)
    tasks = [
        Task(env_id="ludic/GuessTheNumber-v0", seed=i, sampling=Sampling(max_tokens=8, seed=i))
        for i in range(4)
    ]
    episodes = [e async for e in run_episodes(tasks, lambda env: ChatPolicy(client))]
    played = [trajectory_from(rollout) for e in episodes for rollout in e.rollouts]
    assert [len(t.rows) for t in played] == [1] * 4
    assert min(len(t.completions) for t in played) > 3
    assert client.prompts.rewritten == 0


def test_a_typed_dialog_of_many_turns_is_one_row_of_the_template():
    made = make_tokenizer(["1 2 X\n4 O 6"])
    dialog = [
        {"role": role, "content": f"{role} {turn}"}
        for turn in range(30)
        for role in ("user", "assistant")
    ]

    (row,) = trajectory_from(dialog_rollout(dialog, made)).rows
    written = render_chat(made, dialog, reply_comes=False)
    assert row.input_ids.tolist() == written[: len(row.input_ids)]
    assert len(written) - len(row.input_ids) < 3
