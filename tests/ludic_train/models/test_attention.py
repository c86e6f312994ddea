import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from ludic_gym.errors import ConfigError
from ludic_train.models import attention
from ludic_train.models.attention import Attention, AttentionRecorder, attention_for, set_attention
from ludic_train.models.head import action_logprobs
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.trainer.probes import reason_not_to_pack, reason_not_to_share_prompts

FLASH = Attention("flash", "float32")


@pytest.fixture
def model():
    return make_tiny_model(make_tokenizer(["a b"]), hidden_size=16, num_heads=2, num_kv_heads=1)


def test_the_kernel_of_a_forward_pass_is_noted_with_its_type(model):
    found = set()
    with AttentionRecorder(found):
        model(torch.tensor([[3, 4, 5]]))
    assert found == {FLASH}
    with AttentionRecorder(found):
        model.bfloat16()(torch.tensor([[3, 4, 5]]))
    assert found == {FLASH, Attention("flash", "bfloat16")}


def test_other_kernels_are_noted_by_their_names(model):
    math, eager = set(), set()
    with AttentionRecorder(math), sdpa_kernel(SDPBackend.MATH):
        model(torch.tensor([[3, 4, 5]]))
    set_attention(model, "eager")
    with AttentionRecorder(eager, model):
        model(torch.tensor([[3, 4, 5]]))
    assert (math, eager) == ({Attention("math", "float32")}, {Attention("eager", "float32")})


def test_queries_that_are_named_are_seen_and_the_result_stays():
    found, q = set(), torch.randn(1, 2, 8, 4)
    expected = F.scaled_dot_product_attention(q, q, q)
    with AttentionRecorder(found):
        assert F.scaled_dot_product_attention(query=q, key=q, value=q).equal(expected)
    assert found == {FLASH}


# Two rows of two items each, 16 tokens long.
IDS = torch.arange(64).view(2, 32) % 7 + 3
POSITIONS = torch.arange(16).repeat(2, 2)
ROW, COLUMN = torch.nonzero(torch.arange(32).expand(2, 32) % 16, as_tuple=True)


def packed_logprobs(model):
    return action_logprobs(model, IDS, ROW, COLUMN, torch.ones(len(ROW)), POSITIONS).logprobs


# transformers and torch call each other in ways that torch will drop.
OF_TRANSFORMERS = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@OF_TRANSFORMERS
# FlexAttention is compiled for half a minute.
@pytest.mark.parametrize("name", [pytest.param("flex_attention", marks=pytest.mark.slow), "eager"])
@torch.no_grad()
def test_items_that_share_rows_have_equal_log_probs_in_every_attention(model, name):
    expected = packed_logprobs(model)
    set_attention(model, name)
    assert (packed_logprobs(model) - expected).abs().max() < 1e-5


# FlexAttention is compiled for each shape: minutes.
@pytest.mark.slow
@OF_TRANSFORMERS
@torch.no_grad()
def test_the_probes_take_flex_attention_for_items_and_not_for_shared_prompts():
    model = make_tiny_model(make_tokenizer(["a b"], vocab_size=300), num_heads=2, num_kv_heads=1)
    set_attention(model, "flex_attention")
    assert reason_not_to_pack(model) is None
    assert "takes no mask of its own" in reason_not_to_share_prompts(model)


def test_an_attention_that_is_not_installed_is_an_error(model):
    with pytest.raises(ConfigError, match=r"attention='flash_attention_2': .*'sdpa' needs"):
        set_attention(model, "flash_attention_2")


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (("auto", "cpu", "float32"), None),
        (("auto", "cpu", "bf16"), None),
        (("auto", "cuda:0", "float32"), None),
        (("auto", "cuda:0", "bf16"), "flash_attention_3"),
        (("flex_attention", "cuda:0", "bf16"), "flex_attention"),
        (("sdpa", "cpu", "float32"), "sdpa"),
    ],
)
def test_flash_attention_is_taken_where_it_is_installed(asked, expected, monkeypatch):
    for version in (3, 2):
        monkeypatch.setattr(attention, f"is_flash_attn_{version}_available", lambda: True)
    assert attention_for(*asked) == expected
    monkeypatch.setattr(attention, "is_flash_attn_3_available", lambda: False)
    assert attention_for("auto", "cuda:0", "bf16") == "flash_attention_2"
