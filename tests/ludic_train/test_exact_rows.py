"""From tool loops and long dialogs to training rows, with a real chat template."""

import pytest
from trajectories import weighted

from ludic_gym.clients.scripted import ROLE_TOKENS, ScriptedClient
from ludic_gym.policies.chat import ChatPolicy
from ludic_gym.policies.tool_use import TextTools, ToolUse
from ludic_gym.prompts import ExactPrompts, sampled_message
from ludic_gym.types import Completion, Rollout, Sampling, Step, Task
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.rows import rows_from


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


CALL = {"name": "add", "arguments": '{"a": 2, "b": 3}'}
NATIVE = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c", "type": "function", "function": CALL}],
}
IN_TEXT = '<tool_call>{"name": "add", "arguments": {"a": 2, "b": 3}}</tool_call>'


def text(ids):
    return bytes(i for i in ids if i < 256).decode()


@pytest.mark.parametrize(
    ("call", "protocol", "called", "told"),
    [
        (NATIVE, None, '"name": "add"', "5"),
        (IN_TEXT, TextTools(), '"name": "add"', "<tool_result>\n5\n</tool_result>"),
    ],
)
async def test_tool_calls_are_trained_and_their_results_are_not(call, protocol, called, told):
    client = ScriptedClient([call, "Five."])
    policy = ToolUse(ChatPolicy(client), [add], protocol=protocol)
    policy.observe("2+3?")
    decision = await policy.act(Sampling(max_tokens=1000))
    step = Step(observation="2+3?", decision=decision, reward=1.0, terminated=True)

    (row,) = rows_from([Rollout(task=Task(env_id="e"), steps=(step,))], weighted([0.5]))

    trained = text(row.input_ids[row.action_mask].tolist())
    masked = text(row.input_ids[~row.action_mask].tolist())
    assert called in trained
    assert trained.endswith("Five.")
    assert masked.endswith("2+3?" + told)
    # One end of turn for each of the two replies; roles are the template's.
    assert (row.input_ids[row.action_mask] == 256).sum() == 2
    assert not set(row.input_ids[row.action_mask].tolist()) & set(ROLE_TOKENS.values())
    assert set(row.weight[row.action_mask].tolist()) == {0.5}


def rendering(tokenizer):
    def render(messages, reply_comes):
        return tokenizer.apply_chat_template(
            messages, add_generation_prompt=reply_comes, return_dict=False
        )

    return render


def test_prompts_of_a_real_chat_template_continue_what_was_sampled():
    tokenizer = make_tokenizer(["the cat sat on the mat"] * 20)
    prompts = ExactPrompts(rendering(tokenizer))
    question = [{"role": "user", "content": "where?"}]
    # One token per letter: not how the tokenizer itself would write " the".
    letters = [tokenizer.encode(letter)[0] for letter in " the"]
    canonical = tokenizer.encode(" the", add_special_tokens=False)
    assert len(canonical) < len(letters)
    completion = Completion(
        text=" the",
        finish_reason="stop",
        prompt_ids=prompts.token_ids(question),
        completion_ids=(*letters, tokenizer.eos_token_id),
    )
    reply = sampled_message({"role": "assistant", "content": " the"}, question, completion)

    prompt = prompts.token_ids([*question, reply, {"role": "user", "content": "go on"}])

    so_far = completion.prompt_ids + completion.completion_ids
    assert prompt[: len(so_far)] == so_far
    tail = "\n<|im_start|>user\ngo on<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.decode(prompt[len(so_far) :]) == tail
