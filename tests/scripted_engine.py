"""An engine of scripted texts, cut into tokens at random, and tokenizers with chat templates."""

import asyncio
import random
from functools import cache

from ludic_gym.types import Completion
from ludic_train.models.tokenizer import make_tokenizer

# In the manner of Qwen: tools in the system prompt, results as turns of the user.
TOOL_TEMPLATE = (
    "{% if tools %}<|im_start|>system\n{% if messages[0].role == 'system' %}"
    "{{ messages[0].content }}\n{% endif %}{% for tool in tools %}{{ tool | tojson }}\n"
    "{% endfor %}<|im_end|>\n{% elif messages[0].role == 'system' %}<|im_start|>system\n"
    "{{ messages[0].content }}<|im_end|>\n{% endif %}{% for m in messages %}"
    "{% if m.role == 'assistant' %}<|im_start|>assistant\n{{ m.content }}"
    "{% for call in m.tool_calls or [] %}\n<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}'
    "\n</tool_call>{% endfor %}<|im_end|>\n{% elif m.role == 'tool' %}<|im_start|>user\n"
    "<tool_response>\n{{ m.content }}\n</tool_response><|im_end|>\n"
    "{% elif m.role != 'system' %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEXTS = ['{"name": "add", "arguments": {"a": 1, "b": 2}}', "The sum of 12 and 34 is 46."]


@cache
def tokenizer(writes_tools=True):
    """A tokenizer whose template knows tools, or not."""
    made = make_tokenizer(TEXTS, vocab_size=400)
    if writes_tools:
        made.chat_template = TOOL_TEMPLATE
    return made


class ScriptedEngine:
    """Replies by a function of the prompt's text; log-probs are numbers that occur once.

    Texts are cut into tokens at random, as models do and tokenizers do not.
    """

    def __init__(self, reply, tokenizer, *, seed=0, version=0, delay_s=0.0):
        self.reply, self.tokenizer, self.policy_version = reply, tokenizer, version
        self.random, self.delay_s = random.Random(seed), delay_s
        self.sampled = []

    async def continued(self, prompt_ids, sampling):
        version = self.policy_version
        text = self.reply(self.tokenizer.decode(list(prompt_ids)))
        ids = self.cut(text)
        await asyncio.sleep(self.delay_s * len(ids))
        completion = Completion(
            text=text,
            finish_reason="stop",
            sampling=sampling,
            prompt_ids=tuple(prompt_ids),
            completion_ids=ids,
            logprobs=tuple(-self.random.random() for _ in ids),
            policy_version=version,
        )
        self.sampled.append(completion)
        return completion

    def cut(self, text):
        """Token ids of the text, cut in places where the tokenizer would not cut."""
        ids, rest = [], text
        while rest:
            size = self.random.randint(1, 4)
            ids += self.tokenizer.encode(
                rest[:size], add_special_tokens=False, split_special_tokens=True
            )
            rest = rest[size:]
        return (*ids, self.tokenizer.eos_token_id)
