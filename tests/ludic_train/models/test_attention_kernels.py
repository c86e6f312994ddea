import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from ludic_train.models.attention_kernels import Attention, NotedAttention
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer

FLASH = Attention("flash", "float32")


@pytest.fixture
def model():
    return make_tiny_model(make_tokenizer(["a b"]), hidden_size=16, num_heads=2, num_kv_heads=1)


def test_the_kernel_of_a_forward_pass_is_noted_with_its_type(model):
    found = set()
    with NotedAttention(found):
        model(torch.tensor([[3, 4, 5]]))
    assert found == {FLASH}
    with NotedAttention(found):
        model.bfloat16()(torch.tensor([[3, 4, 5]]))
    assert found == {FLASH, Attention("flash", "bfloat16")}


def test_a_kernel_that_holds_all_scores_is_called_math(model):
    found = set()
    with NotedAttention(found), sdpa_kernel(SDPBackend.MATH):
        model(torch.tensor([[3, 4, 5]]))
    assert found == {Attention("math", "float32")}


def test_queries_that_are_named_are_seen_and_the_result_stays():
    found, q = set(), torch.randn(1, 2, 8, 4)
    expected = F.scaled_dot_product_attention(q, q, q)
    with NotedAttention(found):
        assert F.scaled_dot_product_attention(query=q, key=q, value=q).equal(expected)
    assert found == {FLASH}
