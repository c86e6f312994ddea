"""Adapters that come alone, merged into the params of a checkpoint."""

import peft
import pytest
import torch

from ludic_train.models.checkpoint_names import (
    adapted_params,
    adapters_alone,
    merged_params,
)
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer
from ludic_vllm import merging
from ludic_vllm.merging import A, B, Merging, adapter_shapes, base_sum, different_bases, merged

BASE = {"one": torch.tensor([[1.0, 2.0], [3.0, 4.0]]), "norm": torch.tensor([5.0, 6.0])}


def test_a_product_is_added_in_float32_and_rounded_once():
    a, b = torch.tensor([[1.0, -1.0]]), torch.tensor([[0.5], [2.0]])
    assert merged(BASE["one"], a, b).tolist() == [[1.5, 1.5], [5.0, 2.0]]
    # 1 + 2 x 0.0030 is nearer to 1.0078 than to 1 in bfloat16; twice + 0.003 would stay at 1.
    one = torch.ones(1, 1, dtype=torch.bfloat16)
    a, b = torch.tensor([[1.0], [1.0]]), torch.tensor([[0.003, 0.003]])
    assert merged(one, a, b).item() == 1.0078125


@pytest.mark.parametrize("most", [1, 2**28])
def test_all_params_are_loaded_after_the_last_adapter(monkeypatch, most):
    monkeypatch.setattr(merging, "BATCH", most)
    loaded = []

    def load(params, is_last):
        loaded.append(({name: tensor.tolist() for name, tensor in params.items()}, is_last))

    buffer = torch.tensor([1.0, -1.0])
    taking = Merging(BASE.items, load)
    taking.take({"one" + A: buffer.view(1, 2)}, False)
    assert not loaded
    # The next chunk is in the same memory.
    buffer[:] = torch.tensor([0.5, 2.0])
    taking.take({"one" + B: buffer.view(2, 1)}, True)
    one, norm = {"one": [[1.5, 1.5], [5.0, 2.0]]}, {"norm": [5.0, 6.0]}
    assert loaded == ([(one, False), (norm, True)] if most == 1 else [(one | norm, True)])


def test_shapes_of_adapters_follow_from_the_checkpoint():
    shapes = {"one": (8, 2), "norm": (2,)}
    assert adapter_shapes({"one": 4}, shapes) == {"one" + A: (4, 2), "one" + B: (8, 4)}
    with pytest.raises(ValueError, match="no matrices two, norm"):
        adapter_shapes({"two": 4, "norm": 4}, shapes)


def test_bases_are_compared_in_any_type():
    sums = {name: base_sum(tensor) for name, tensor in BASE.items()}
    short = {name: tensor.bfloat16() for name, tensor in BASE.items()}
    assert different_bases(sums, short.items) == []
    assert different_bases(sums, {**BASE, "one": BASE["one"] + 1}.items) == ["one"]
    assert different_bases(sums, {"one": BASE["one"]}.items) == ["norm"]


@pytest.mark.parametrize("rslora", [False, True])
def test_adapters_that_are_sent_alone_give_the_params_that_are_sent_merged(rslora):
    model = make_tiny_model(make_tokenizer(["a b"]), hidden_size=16, num_heads=2, num_kv_heads=1)
    base = {name: param.clone() for name, param in model.named_parameters()}
    settings = peft.LoraConfig(
        r=3, lora_alpha=12, use_rslora=rslora, target_modules=["q_proj", "down_proj"]
    )
    adapted = peft.get_peft_model(model, settings)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, param in adapted.named_parameters():
            if "lora_" in name:
                param.copy_(torch.randn(param.shape, generator=generator))
    own, taken = dict(adapters_alone(adapted.named_parameters(), adapted)), {}
    names = dict(adapted_params(adapted).values())
    assert set(names.values()) == {3}
    assert own.keys() == adapter_shapes(names, {n: tuple(p.shape) for n, p in base.items()}).keys()
    Merging(base.items, lambda params, is_last: taken.update(params)).take(own, True)
    expected = dict(merged_params(adapted.named_parameters(), adapted))
    changed = [name for name in names if not torch.equal(taken[name], base[name])]
    assert len(changed) == len(names) == 4
    for name, param in taken.items():
        assert torch.allclose(param, expected[name], rtol=0, atol=1e-5)
