"""Tokenizers with chat templates in the manner of model families, written for these tests.

Each is what its name says in the things that matter here: how turns end, which tokens are control
tokens and flagged as such, what happens to thoughts, to the system prompt and to roles.
"""

from dataclasses import dataclass, field
from functools import cache

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from ludic_train.models.chat_profile import add_stops
from ludic_train.models.chat_template import set_chat_args

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content | trim }}"
    "<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
LLAMA_2 = (
    "{% for m in messages %}{% if m.role == 'user' %}{{ bos_token }}[INST] {{ m.content | trim }} "
    "[/INST]{% elif m.role == 'assistant' %} {{ m.content | trim }} {{ eos_token }}"
    "{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}"
    "{% endif %}{% endfor %}"
)
LLAMA_3 = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{{ m.content | trim }}<|eot_id|>{% endfor %}{% if add_generation_prompt %}"
    "<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
# Thoughts stay in the last turn alone, where the template writes an empty one if there is none.
QWEN_3 = (
    "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' %}{% set c = m.content %}{% set r = '' %}"
    "{% if '</think>' in c %}"
    "{% set r = c.split('</think>')[0].split('<think>')[-1].strip('\n') %}"
    "{% set c = c.split('</think>')[-1].lstrip('\n') %}{% endif %}"
    "{% if loop.index0 > ns.last and (loop.last or r) %}"
    "<think>\n{{ r }}\n</think>\n\n{% endif %}{{ c }}"
    "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}"
    "<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
MISTRAL = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}{% set system = messages[0].content %}"
    "{% set messages = messages[1:] %}{% endif %}{% for m in messages %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('conversation roles must alternate user/assistant/...') }}{% endif %}"
    "{% if m.role == 'user' %}[INST] {% if loop.last and system is defined %}{{ system }}\n\n"
    "{% endif %}{{ m.content }}[/INST]{% else %} {{ m.content | trim }}{{ eos_token }}{% endif %}"
    "{% endfor %}"
)
PHI_3 = (
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% else %}{{ eos_token }}{% endif %}"
)
GPT_OSS = (
    "{% for m in messages %}{% if m.role == 'assistant' %}<|start|>assistant<|channel|>final"
    "<|message|>{{ m.content }}{% if loop.last and not add_generation_prompt %}<|return|>"
    "{% else %}<|end|>{% endif %}{% else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}"
)
# Nothing is written after a reply: the next role ends it.
GLM_4 = (
    "[gMASK]<sop>{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
# Markers of roles are tokens that the tokenizer does not flag as special; the prompt opens the
# thought, which is dropped from every reply that is written.
R1 = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}"
    "{% elif m.role == 'user' %}<｜User｜>{{ m.content }}{% else %}<｜Assistant｜>"
    "{{ m.content.split('</think>')[-1].lstrip() }}<｜end▁of▁sentence｜>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<｜Assistant｜><think>\n{% endif %}"
)


@dataclass(frozen=True, kw_only=True)
class Family:
    """A template and its tokenizer, and what must be found out about them.

    specials: flagged as special; plain: added tokens that are not. named: bos, eos and pad.
    generation_stops: eos tokens of the generation config.
    end, stops: of turns, as text. keeps: the template keeps replies as they were sampled.
    """

    template: str
    specials: tuple[str, ...]
    named: dict[str, str]
    end: str
    stops: frozenset[str]
    keeps: bool
    plain: tuple[str, ...] = ()
    generation_stops: tuple[str, ...] = ()
    roles: tuple[str, ...] = ("system", "user", "assistant", "tool")
    args: dict[str, object] = field(default_factory=dict)


IM = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TAGS = ("<think>", "</think>")
QWEN_NAMES = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
NO_TOOLS = ("system", "user", "assistant")
FAMILIES = {
    "gemma": Family(
        template=GEMMA,
        specials=("<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>"),
        named={"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>"},
        end="<end_of_turn>",
        stops=frozenset({"<end_of_turn>", "<eos>"}),
        keeps=True,
        roles=("user", "assistant", "tool"),
    ),
    "qwen base": Family(
        template=CHATML,
        specials=IM,
        named={"eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"},
        end="<|im_end|>",
        stops=frozenset({"<|im_end|>", "<|endoftext|>"}),
        keeps=True,
    ),
    "llama 2": Family(
        template=LLAMA_2,
        specials=("<s>", "</s>"),
        named={"bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>"},
        end=" </s>",
        stops=frozenset({"</s>"}),
        keeps=False,
        roles=("user", "assistant"),
    ),
    "llama 3": Family(
        template=LLAMA_3,
        specials=(
            *("<|begin_of_text|>", "<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"),
            *("<|start_header_id|>", "<|end_header_id|>"),
        ),
        named={"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"},
        generation_stops=("<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"),
        end="<|eot_id|>",
        stops=frozenset({"<|eot_id|>", "<|end_of_text|>", "<|eom_id|>"}),
        keeps=True,
    ),
    "qwen 3": Family(
        template=QWEN_3,
        specials=IM,
        plain=TAGS,
        named=QWEN_NAMES,
        generation_stops=("<|im_end|>", "<|endoftext|>"),
        end="<|im_end|>",
        stops=frozenset({"<|im_end|>", "<|endoftext|>"}),
        keeps=False,
    ),
    "qwen 3, no thoughts": Family(
        template=QWEN_3,
        specials=IM,
        plain=TAGS,
        named=QWEN_NAMES,
        end="<|im_end|>",
        stops=frozenset({"<|im_end|>"}),
        keeps=False,
        args={"enable_thinking": False},
    ),
    "mistral": Family(
        template=MISTRAL,
        specials=("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]"),
        named={"bos_token": "<s>", "eos_token": "</s>"},
        end="</s>",
        stops=frozenset({"</s>"}),
        keeps=False,
        roles=NO_TOOLS,
    ),
    "phi 3": Family(
        template=PHI_3,
        specials=("<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"),
        named={"eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"},
        generation_stops=("<|endoftext|>", "<|assistant|>", "<|end|>"),
        end="<|end|>",
        stops=frozenset({"<|end|>", "<|assistant|>", "<|endoftext|>"}),
        keeps=True,
    ),
    "gpt-oss": Family(
        template=GPT_OSS,
        specials=(
            *("<|startoftext|>", "<|endoftext|>", "<|return|>", "<|channel|>", "<|start|>"),
            *("<|end|>", "<|message|>", "<|call|>"),
        ),
        named={"bos_token": "<|startoftext|>", "eos_token": "<|return|>"},
        generation_stops=("<|return|>", "<|endoftext|>", "<|call|>"),
        end="<|return|>",
        stops=frozenset({"<|return|>", "<|endoftext|>", "<|call|>"}),
        keeps=False,
    ),
    "glm 4": Family(
        template=GLM_4,
        specials=("<|endoftext|>", "[gMASK]", "<sop>"),
        plain=("<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
        named={"eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"},
        generation_stops=("<|endoftext|>", "<|user|>", "<|observation|>"),
        end="<|user|>",
        stops=frozenset({"<|endoftext|>", "<|user|>", "<|observation|>"}),
        keeps=True,
    ),
    "r1": Family(
        template=R1,
        specials=("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
        plain=("<｜User｜>", "<｜Assistant｜>", *TAGS),
        named={"bos_token": "<｜begin▁of▁sentence｜>", "eos_token": "<｜end▁of▁sentence｜>"},
        end="<｜end▁of▁sentence｜>",
        stops=frozenset({"<｜end▁of▁sentence｜>"}),
        keeps=False,
    ),
}


@cache
def family_tokenizer(name):
    """The tokenizer of a family; its ids of further merges differ from family to family."""
    family = FAMILIES[name]
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=list(family.specials),
        show_progress=False,
    )
    bpe.train_from_iterator(["the cat sat user assistant system model higher lower"] * 3, trainer)
    made = PreTrainedTokenizerFast(
        tokenizer_object=bpe, clean_up_tokenization_spaces=False, **family.named
    )
    made.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in family.plain])
    made.chat_template = family.template
    set_chat_args(made, family.args)
    add_stops(made, made.convert_tokens_to_ids(list(family.generation_stops)))
    return made
