"""Native tools on routes of token ids: written by the template, called in sampled tokens."""

import json
import random
from dataclasses import replace

import pytest
from scripted_engine import TEXTS, TOOL_TEMPLATE, ScriptedEngine

from ludic_gym.errors import ConfigError
from ludic_gym.policies.chat import ChatPolicy
from ludic_gym.policies.tool_use import ToolUse
from ludic_gym.prompts import ExactPrompts
from ludic_gym.types import Completion, Rollout, Sampling, Step, Task
from ludic_train.engine.client import LocalChatClient
from ludic_train.models.chat_template import chat_renderer
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.models.tool_calls import call_format
from ludic_train.rows import trajectory_from

# In the manner of Llama 3: tools in the system message, calls as bare JSON.
LLAMA = (
    "<|im_start|>system\n{% for tool in tools or [] %}{{ tool | tojson }}\n{% endfor %}<|im_end|>\n"
    "{% for m in messages %}<|im_start|>{{ 'ipython' if m.role == 'tool' else m.role }}\n"
    "{% if m.tool_calls %}"
    '{"name": "{{ m.tool_calls[0].function.name }}", '
    '"parameters": {{ m.tool_calls[0].function.arguments | tojson }}}'
    "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# In the manner of Mistral: tools before the last message of the user, ids of nine characters.
MISTRAL = (
    "{% set last = namespace(user=0) %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% set last.user = loop.index0 %}{% endif %}{% endfor %}{% for m in messages %}"
    "{% if m.role == 'user' %}{% if tools and loop.index0 == last.user %}"
    "[TOOLS]{{ tools | tojson }}[/TOOLS]{% endif %}[INST]{{ m.content }}[/INST]"
    "{% elif m.tool_calls %}[TOOL_CALLS] [{% for call in m.tool_calls %}"
    "{% if call.id | length != 9 %}{{ raise_exception('ids have nine characters') }}{% endif %}"
    '{"name": "{{ call.function.name }}", '
    '"arguments": {{ call.function.arguments | tojson }}, "id": "{{ call.id }}"}'
    "{% if not loop.last %}, {% endif %}{% endfor %}]<|im_end|>"
    "{% elif m.role == 'tool' %}[RESULT]{{ m.content }}[/RESULT]"
    "{% else %}{{ m.content }}<|im_end|>{% endif %}{% endfor %}"
)
CALLS = {
    "hermes": '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>',
    "llama": '{"name": "add", "parameters": {"a": 1}}',
    "mistral": '[TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}}]',
}
TEMPLATES = {"hermes": TOOL_TEMPLATE, "llama": LLAMA, "mistral": MISTRAL}


def tokenizer(family):
    specials = ["[TOOL_CALLS]"] if family == "mistral" else []
    made = make_tokenizer(TEXTS, vocab_size=400, special_tokens=specials)
    made.chat_template = TEMPLATES[family]
    return made


def add(a: int) -> int:
    """One more.

    Args:
        a: a number.
    """
    return a + 1


class Client:
    """Completes dialogs by an engine of scripted texts, as clients of token ids do."""

    def __init__(self, replies, made, seed):
        render, texts = chat_renderer(made), iter(replies)
        self.engine = ScriptedEngine(lambda prompt: next(texts), made, seed=seed)
        self.prompts, self.read_calls = ExactPrompts(render), render.read_calls
        self.tokenizer = made

    async def complete(self, messages, sampling, tools=()):
        ids = self.prompts.token_ids(messages, tools)
        completion = await self.engine.continued(ids, sampling)
        # As servers have it: text without special tokens.
        text = self.tokenizer.decode(list(completion.completion_ids), skip_special_tokens=True)
        completion = replace(completion, text=text)
        return self.read_calls(completion, tools) if tools else completion


async def rollout_of(client, turns):
    policy = ToolUse(ChatPolicy(client, system_prompt="Be brief."), [add])
    policy.reset("")
    steps = []
    for turn in range(turns):
        policy.observe(f"Turn {turn}: 1 + 1?")
        decision = await policy.act(Sampling())
        steps.append(Step(observation="?", decision=decision, reward=0.0))
    return Rollout(task=Task(env_id="x"), steps=tuple(steps))


@pytest.mark.parametrize("family", TEMPLATES)
@pytest.mark.parametrize("seed", range(5))
async def test_the_tokens_of_calls_are_trained_as_they_were_sampled(family, seed):
    draw = random.Random(seed)
    counts = [draw.randint(0, 3) for _ in range(3)]
    replies = [text for n in counts for text in [CALLS[family]] * n + ["It is 2."]]
    client = Client(replies, tokenizer(family), seed)
    rollout = await rollout_of(client, len(counts))
    calls = [c for step in rollout.steps for c in step.decision.completions]
    assert [step.decision.action for step in rollout.steps] == ["It is 2."] * 3
    # Exactly what the engine sampled, cut into tokens as no tokenizer cuts.
    assert [c.completion_ids for c in calls] == [c.completion_ids for c in client.engine.sampled]
    assert [len(c.tool_calls) for c in calls] == [k for n in counts for k in [1] * n + [0]]
    for step in rollout.steps:
        for before, after in zip(
            step.decision.completions, step.decision.completions[1:], strict=False
        ):
            begun = before.prompt_ids + before.completion_ids
            assert after.prompt_ids[: len(begun)] == begun
            assert before.finish_reason == "tool_calls"
            assert json.loads(before.tool_calls[0].arguments) == {"a": 1}
            # The tool was run, and its result is in the prompt.
            assert "2" in client.tokenizer.decode(after.prompt_ids[len(begun) :])
    # Mistral's template moves the tools to each new question; here they stay before the first, too.
    assert len(trajectory_from(rollout).rows) == 1


async def test_a_prompt_without_the_tools_of_the_one_before_is_written_anew():
    made = tokenizer("hermes")
    client = Client([CALLS["hermes"]] * 2 + ["2"], made, 0)
    policy = ToolUse(ChatPolicy(client), [add], max_steps=3)
    policy.observe("1 + 1?")
    *called, last = (await policy.act(Sampling())).completions
    assert [b"add" in made.decode(c.prompt_ids).encode() for c in called] == [True, True]
    assert '"type": "function"' not in made.decode(last.prompt_ids)
    assert (client.prompts.extended, client.prompts.rewritten) == (1, 1)


async def test_the_local_engine_offers_tools_by_the_template():
    made = tokenizer("hermes")
    client = LocalChatClient(make_tiny_model(made), made)
    schema = tuple(tool.schema for tool in ToolUse(ChatPolicy(client), [add]).tools.values())
    question = [{"role": "user", "content": "?"}]
    completion = await client.complete(question, Sampling(max_tokens=3), schema)
    expected = made.apply_chat_template(question, tools=schema, add_generation_prompt=True)
    assert list(completion.prompt_ids) == list(expected["input_ids"])
    made.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    with pytest.raises(ConfigError, match="1 tools were offered, and the model's chat template"):
        await LocalChatClient(make_tiny_model(made), made).complete(question, Sampling(), schema)


@pytest.mark.parametrize("family", TEMPLATES)
def test_a_format_is_known_by_its_template(family):
    forms = {"hermes": "tagged", "llama": "bare", "mistral": "list"}
    assert call_format(TEMPLATES[family]) == forms[family]
    assert call_format(TEMPLATES[family].replace("tools", "things")) is None


async def test_tools_with_calls_of_an_unknown_format_are_refused():
    made = tokenizer("hermes")
    made.chat_template = TEMPLATES["hermes"].replace("tool_call>", "do>")
    assert call_format(made.chat_template) is None
    question, schema = [{"role": "user", "content": "?"}], {"type": "function", "function": {}}
    with pytest.raises(ConfigError, match="in a format that is not known: use ToolUse"):
        chat_renderer(made)(question, True, [schema])


@pytest.mark.parametrize("prompt", ["", "<think>\n"])
@pytest.mark.parametrize("end", ["</think>\n2", ""])
def test_a_call_inside_a_thought_is_none(prompt, end):
    made = tokenizer("hermes")
    text = ("" if prompt else "<think>") + CALLS["hermes"] + end
    ids = tuple(made.encode(prompt, add_special_tokens=False))
    done = Completion(text=text, finish_reason="stop", completion_ids=(1,), prompt_ids=ids)
    tool = {"type": "function", "function": {"name": "add", "parameters": {}}}
    assert chat_renderer(made).read_calls(done, [tool]) is done


async def test_a_system_prompt_in_the_first_question_leaves_the_rows_whole():
    made = tokenizer("hermes")
    made.chat_template = (
        "{% for m in messages %}{% if m.role == 'system' %}"
        "{{ raise_exception('System role not supported') }}{% endif %}"
        "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    client = Client(["4", "5"], made, 0)
    policy = ChatPolicy(client, system_prompt="Be brief.")
    for question in ("2 + 2?", "2 + 3?"):
        policy.observe(question)
        last = (await policy.act(Sampling())).completions[0]
    assert "user\nBe brief.\n\n2 + 2?" in made.decode(last.prompt_ids)
    assert (client.prompts.extended, client.prompts.rewritten) == (1, 0)
