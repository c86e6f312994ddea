import torch

import ludic_gym  # noqa: F401 - registers the environments
from ludic_gym.contexts import FullDialog
from ludic_gym.parsers import xml_tag_parser
from ludic_gym.policies.chat import ChatPolicy
from ludic_gym.policies.wrappers import Parsed
from ludic_gym.rollout.episodes import run_episodes
from ludic_gym.types import Sampling, Task
from ludic_train.algorithms.presets import sft
from ludic_train.engine.client import LocalChatClient
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
