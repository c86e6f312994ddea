"""Arguments of chat templates: read by the template, kept by what is saved, refused if unknown."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludic_gym.errors import ConfigError
from ludic_train.models.chat_template import render_chat, set_chat_args
from ludic_train.models.load import load_model, save_model
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import CHAT_TEMPLATE, make_tokenizer

BASE = make_tokenizer(["a b c"])
# As Qwen3 ends its prompt; read inside a loop and a macro too.
THINKING = (
    "{% macro head(m) %}<|im_start|>{{ m.role }}{% if loud is defined %} {{ loud }}{% endif %}\n"
    "{% endmacro %}{% for m in messages %}{{ head(m) }}{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n"
    "{% endif %}{% endif %}"
)
QUESTION = [{"role": "user", "content": "a?"}]


def tokenizer(template=THINKING):
    made = copy.copy(BASE)
    made.chat_template = template
    return made


def written(made):
    return made.decode(render_chat(made, QUESTION))


def test_a_value_is_read_as_if_it_were_given_to_the_template():
    made = tokenizer()
    given = made.apply_chat_template(
        QUESTION, add_generation_prompt=True, tokenize=False, enable_thinking=False, loud="é!"
    )
    set_chat_args(made, {"enable_thinking": False, "loud": "é!"})
    assert written(made) == given
    assert written(made) != written(tokenizer())


JSON = st.recursive(
    st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(JSON)
def test_any_json_value_is_that_value_in_the_template(value):
    made = tokenizer("{{ loud }}{% for m in messages %}{{ m.content }}{% endfor %}")
    plain = made.apply_chat_template(QUESTION, tokenize=False, loud=value)
    set_chat_args(made, {"loud": value})
    assert made.apply_chat_template(QUESTION, tokenize=False) == plain


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"enable_thinkin": False}, "no argument 'enable_thinkin'; did you mean 'enable_thinking'"),
        ({"depth": 3}, "'depth'; it reads: enable_thinking, loud"),
        ({"messages": []}, "no argument 'messages'"),
        ({"loud": None}, "loud is null: leave it out"),
        ({"loud": float("nan")}, "can be JSON alone"),
        ({"loud": object()}, "can be JSON alone"),
    ],
)
def test_what_no_template_reads_is_refused(args, message):
    with pytest.raises(ConfigError, match=message):
        set_chat_args(tokenizer(), args)


def test_a_template_without_arguments_says_so():
    with pytest.raises(ConfigError, match="no argument 'enable_thinking'; it has none"):
        set_chat_args(tokenizer(CHAT_TEMPLATE), {"enable_thinking": False})


def test_the_template_for_tools_has_the_values_too():
    made = tokenizer({"default": THINKING, "tool_use": THINKING + "{{ tools }}", "rag": "x"})
    set_chat_args(made, {"enable_thinking": False})
    assert made.chat_template["rag"] == "x"
    tool = {"type": "function", "function": {"name": "add", "parameters": {}}}
    assert "</think>" in made.decode(render_chat(made, QUESTION, tools=[tool]))


def test_a_saved_model_is_prompted_as_it_was(tmp_path):
    made = tokenizer()
    set_chat_args(made, {"enable_thinking": False})
    save_model(make_tiny_model(made), made, tmp_path)
    loaded = load_model(tmp_path)[1]
    assert render_chat(loaded, QUESTION) == render_chat(made, QUESTION)
