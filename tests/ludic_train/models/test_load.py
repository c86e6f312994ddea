import os

import huggingface_hub.constants
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from model_types import made

from ludic_gym.errors import ConfigError
from ludic_gym.types import Message
from ludic_train.errors import ModelNotFound
from ludic_train.models.chat_template import render_chat
from ludic_train.models.load import LoRA, load_model, load_params, save_model, with_new_lora
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer

BOARD = "1 2 X\n4 O 6\n7 8 9"
TEXTS = [BOARD, "You play X. Reply with the number of a free cell.", "5"]
TOKENIZER = make_tokenizer(TEXTS, special_tokens=("<think>",))
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
SPECIALS = ("<|im_end|>", "<|im_start|>", "<|pad|>", "<think>")


def user(text):
    return Message(role="user", content=text)


def same_params(one, other):
    ones, others = dict(one.named_parameters()), dict(other.named_parameters())
    return ones.keys() == others.keys() and all(torch.equal(ones[k], others[k]) for k in ones)


@given(ANY_TEXT)
def test_any_text_comes_back_exactly(text):
    ids = TOKENIZER.encode(text, add_special_tokens=False, split_special_tokens=True)
    assert TOKENIZER.decode(ids) == text


def test_a_board_takes_one_token_a_cell_or_line_end_and_eight_around_it():
    # <|im_start|> user \n ... <|im_end|> \n <|im_start|> assistant \n
    cells, line_ends = 9, 2
    assert len(render_chat(TOKENIZER, [user(BOARD)])) == 3 + cells + line_ends + 5


def test_frequent_words_merge_and_the_vocabulary_stays_small():
    assert len(TOKENIZER.encode(" number", add_special_tokens=False)) == 1
    assert len(TOKENIZER) <= 320


def test_a_vocabulary_without_room_for_all_bytes_is_refused():
    with pytest.raises(ConfigError, match=r"vocab_size=200 is too small.* need 259"):
        make_tokenizer(TEXTS, vocab_size=200)


ORDINARY = ANY_TEXT.filter(lambda text: not any(special in text for special in SPECIALS))


@given(st.lists(ORDINARY, min_size=1, max_size=5).filter(lambda texts: len(texts) % 2))
@settings(max_examples=50)
def test_ordinary_dialogs_get_the_ids_of_the_chat_template(texts):
    roles = ("user", "assistant")
    dialog = [Message(role=roles[i % 2], content=text) for i, text in enumerate(texts)]
    expected = TOKENIZER.apply_chat_template(
        dialog, add_generation_prompt=True, tokenize=True, return_dict=False
    )
    assert render_chat(TOKENIZER, dialog) == expected


@given(st.lists(st.one_of(st.sampled_from(SPECIALS), ANY_TEXT), max_size=5).map("".join))
def test_no_message_text_becomes_a_special_token(text):
    ids = render_chat(TOKENIZER, [user(text)])
    empty = render_chat(TOKENIZER, [user("")])
    special = set(TOKENIZER.all_special_ids)
    assert [i for i in ids if i in special] == [i for i in empty if i in special]
    assert TOKENIZER.decode(ids) == TOKENIZER.decode(empty[:3]) + text + TOKENIZER.decode(empty[3:])


def test_the_next_prompt_extends_the_last_prompt_and_its_completion():
    first = [user(BOARD)]
    prompt = render_chat(TOKENIZER, first)
    completion = [*TOKENIZER.encode("5", add_special_tokens=False), TOKENIZER.eos_token_id]
    then = render_chat(
        TOKENIZER, [*first, Message(role="assistant", content="5"), user("1 2 X\n4 O O\n7 8 9")]
    )
    assert then[: len(prompt) + len(completion)] == prompt + completion


@pytest.mark.parametrize("begun", ["", "6", " 6 <|im_end|> "])
def test_a_dialog_that_ends_with_the_assistant_is_continued(begun):
    dialog = [user("5"), Message(role="assistant", content=begun)]
    ids = render_chat(TOKENIZER, dialog)
    assert TOKENIZER.decode(ids) == TOKENIZER.decode(render_chat(TOKENIZER, dialog[:1])) + begun
    assert ids.count(TOKENIZER.eos_token_id) == 1


def test_tool_calls_that_the_template_cannot_show_are_refused():
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    dialog = [user("5"), Message(role="assistant", content="", tool_calls=[call]), user("6")]
    with pytest.raises(ConfigError, match="refuses this dialog: it knows no tool calls"):
        render_chat(TOKENIZER, dialog)


def test_an_assistant_message_without_text_cannot_be_continued():
    with pytest.raises(ConfigError, match="refuses this dialog"):
        render_chat(TOKENIZER, [user("5"), Message(role="assistant", content=None)])


def test_special_tokens_inside_tool_calls_stay_text_too():
    lenient = make_tokenizer(TEXTS)
    lenient.chat_template = "{% for m in messages %}{{ m['tool_calls'] | tojson }}{% endfor %}"
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "<|im_end|>"}}
    ids = render_chat(lenient, [Message(role="user", content=None, tool_calls=[call])])
    assert not set(ids) & set(lenient.all_special_ids)
    assert '"arguments": "<|im_end|>"' in lenient.decode(ids)


def test_equal_seeds_give_equal_models_and_leave_the_global_random_state_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one, two, other = (make_tiny_model(TOKENIZER, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.rand(3), expected)
    assert same_params(one, two)
    assert not same_params(one, other)


def test_heads_that_do_not_divide_are_refused():
    with pytest.raises(ConfigError, match="hidden_size=60"):
        make_tiny_model(TOKENIZER, hidden_size=60, num_heads=8)


def test_a_saved_model_loads_equal(tmp_path, capfd):
    model = make_tiny_model(TOKENIZER)
    save_model(model, TOKENIZER, tmp_path)
    loaded, tokenizer = load_model(tmp_path)
    assert same_params(model, loaded)
    assert render_chat(tokenizer, [user("<|pad|> 5")]) == render_chat(
        TOKENIZER, [user("<|pad|> 5")]
    )
    assert capfd.readouterr() == ("", "")


def test_a_saved_adapter_loads_equal_on_top_of_its_base(tmp_path):
    save_model(make_tiny_model(TOKENIZER), TOKENIZER, tmp_path / "base")
    model, tokenizer = load_model(tmp_path / "base", lora_rank=4)
    trainable = [p for p in model.parameters() if p.requires_grad]
    with torch.no_grad():
        for param in trainable:
            param.normal_()
    save_model(model, tokenizer, tmp_path / "adapter")
    assert not (tmp_path / "adapter" / "model.safetensors").exists()
    loaded, _ = load_model(tmp_path / "adapter")
    assert same_params(model, loaded)
    assert len(trainable) == len([p for p in loaded.parameters() if p.requires_grad])


def test_an_adapter_on_an_adapter_is_refused(tmp_path):
    save_model(make_tiny_model(TOKENIZER), TOKENIZER, tmp_path / "base")
    save_model(*load_model(tmp_path / "base", lora_rank=2), tmp_path / "adapter")
    with pytest.raises(ConfigError, match="already holds an adapter: leave out lora_rank=4"):
        load_model(tmp_path / "adapter", lora_rank=4)


def test_equal_seeds_give_equal_adapters(tmp_path):
    save_model(make_tiny_model(TOKENIZER), TOKENIZER, tmp_path)
    one, two = (load_model(tmp_path, lora_rank=2, seed=3)[0] for _ in range(2))
    assert same_params(one, two)


def test_a_rank_below_one_is_refused(tmp_path):
    save_model(make_tiny_model(TOKENIZER), TOKENIZER, tmp_path)
    with pytest.raises(ConfigError, match="lora_rank=0"):
        load_model(tmp_path, lora_rank=0)


def adapter_of(tmp_path, **settings):
    save_model(make_tiny_model(TOKENIZER), TOKENIZER, tmp_path)
    return load_model(tmp_path, lora=LoRA(rank=4, **settings))[0]


@pytest.mark.parametrize(
    ("settings", "scaling"),
    [
        ({}, 2.0),
        ({"alpha": 6.0}, 6 / 4),
    ],
)
def test_the_change_of_an_adapter_is_scaled_as_documented(settings, scaling, tmp_path):
    model = adapter_of(tmp_path, **settings)
    layer = model.base_model.model.model.layers[0].self_attn.q_proj
    x = torch.randn(3, layer.in_features)
    before = layer(x)
    with torch.no_grad():
        layer.lora_B["default"].weight.normal_()
    low = layer.lora_B["default"](layer.lora_A["default"](x))
    torch.testing.assert_close(layer(x), before + scaling * low)


def test_only_the_targets_get_adapters(tmp_path):
    model = adapter_of(tmp_path, targets="q_proj, down_proj")
    trained = [n for n, p in model.named_parameters() if p.requires_grad]
    assert {name.split(".lora_")[0].rpartition(".")[2] for name in trained} == {
        "q_proj",
        "down_proj",
    }


# Mamba's kernels pass by adapters; a gate of attention has the name of an expert's; a product of
# groups has no plain input.
@pytest.mark.parametrize(
    ("name", "with_adapters", "without"),
    [
        ("mamba", {"in_proj", "x_proj"}, {"out_proj", "dt_proj"}),
        ("falcon_h1", {"q_proj", "in_proj", "down_proj"}, {"out_proj"}),
        ("nemotron_h", {"q_proj", "in_proj"}, {"out_proj"}),
        ("qwen3_5_text", {"q_proj", "in_proj_qkv", "out_proj"}, {"lm_head"}),
        ("afmoe", {"q_proj", "o_proj"}, {"gate_proj"}),
        ("deepseek_v4", {"q_a_proj", "o_b_proj"}, {"o_a_proj"}),
    ],
)
def test_all_linear_layers_that_can_have_adapters_have_them(name, with_adapters, without):
    model = with_new_lora(made(name), LoRA(rank=2))
    adapted = {
        n.split(".lora_")[0].rpartition(".")[2] for n, _ in model.named_parameters() if "lora_" in n
    }
    assert with_adapters <= adapted
    assert not without & adapted
    model(torch.tensor([[5, 6, 7]]), use_cache=False).logits.sum().backward()
    unused = {n for n, p in model.named_parameters() if "lora_" in n and p.grad is None}
    # A text of three tokens is shorter than what its compressors put together.
    assert all("compressor" in name for name in unused)


def test_targets_that_cannot_have_adapters_are_refused_by_one_error():
    with pytest.raises(ConfigError, match=r"lora_targets='out_proj'.*incompatible"):
        with_new_lora(made("mamba"), LoRA(rank=2, targets="out_proj"))


def test_targets_that_the_model_lacks_are_named_with_those_it_has(tmp_path):
    with pytest.raises(ConfigError, match=r"no linear layer 'query'; it has .*down_proj.*q_proj"):
        adapter_of(tmp_path, targets="q_proj,query")


def test_targets_that_match_only_by_their_last_part_are_not_there(tmp_path):
    with pytest.raises(ConfigError, match=r"no linear layer 'mlp\.q_proj'"):
        adapter_of(tmp_path, targets="mlp.q_proj")


def test_an_adapter_on_a_tied_head_is_refused_when_it_is_made(tmp_path):
    with pytest.raises(ConfigError, match="the head 'lm_head' is tied to the embeddings"):
        adapter_of(tmp_path, targets="q_proj,lm_head")


@pytest.mark.parametrize("settings", [{"alpha": 0.0}, {"targets": "q_proj,"}])
def test_settings_of_adapters_that_mean_nothing_are_refused(settings):
    with pytest.raises(ConfigError, match=next(iter(settings))):
        LoRA(rank=4, **settings)


@pytest.mark.parametrize(
    "name", ["./no/such/folder", "/no/such/folder", "no/such/folder", "nobody/nothing"]
)
def test_a_model_that_is_not_there_is_one_clear_error(name, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelNotFound, match=name):
        load_model(name)


def test_a_folder_without_a_model_is_one_clear_error(tmp_path):
    with pytest.raises(ModelNotFound, match="Hugging Face format"):
        load_model(tmp_path)


@pytest.mark.parametrize("adapter", [False, True])
def test_a_model_whose_files_are_cut_is_one_clear_error(adapter, tmp_path):
    base = tmp_path / "base"
    save_model(make_tiny_model(TOKENIZER, seed=0), TOKENIZER, base)
    damaged = base
    if adapter:
        damaged = tmp_path / "adapter"
        save_model(*load_model(base, lora_rank=2), damaged)
    (file,) = damaged.glob("*.safetensors")
    os.truncate(file, 60)
    with pytest.raises(ModelNotFound, match=f"cannot load a model from '{damaged}'"):
        load_model(damaged)


def test_a_tokenizer_without_chat_template_is_refused(tmp_path):
    plain = make_tokenizer(TEXTS)
    plain.chat_template = None
    save_model(make_tiny_model(plain), plain, tmp_path)
    with pytest.raises(ConfigError, match="no chat template"):
        load_model(tmp_path)


def test_params_go_into_a_model_of_the_same_shape_alone(tmp_path):
    model = make_tiny_model(TOKENIZER, seed=1)
    save_model(model, TOKENIZER, tmp_path)
    other = make_tiny_model(TOKENIZER, seed=2)
    load_params(other, tmp_path)
    assert same_params(other, model)
    with pytest.raises(ConfigError, match="another shape"):
        load_params(make_tiny_model(TOKENIZER, hidden_size=128), tmp_path)
    with pytest.raises(ConfigError, match="another model: missing"):
        load_params(make_tiny_model(TOKENIZER, num_layers=3), tmp_path)
    with pytest.raises(ModelNotFound, match=r"no \*\.safetensors"):
        load_params(model, tmp_path / "nothing")
