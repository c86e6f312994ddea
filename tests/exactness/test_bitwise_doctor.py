"""`ludic doctor --bitwise` finds nothing where all bits are equal, and names each planted fault."""

from contextlib import asynccontextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch

from ludic_train.agents.served_model import ServedModel
from ludic_train.cluster.doctor.examine import examine
from ludic_train.engine import batch
from ludic_train.engine.sampling import choose
from ludic_train.models.exact import make_exact
from ludic_train.models.load import load_model, save_model
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    tokenizer = make_tokenizer(["What is 12 + 30?"])
    save_model(make_tiny_model(tokenizer), tokenizer, path)
    return path


@asynccontextmanager
async def serving(folder, spoil=lambda model, tokenizer: None):
    """The URL of a local server whose model and tokenizer `spoil` has changed."""
    model, tokenizer = load_model(folder)
    make_exact(model.eval().requires_grad_(False))
    spoil(model, tokenizer)
    async with ServedModel("m", model, tokenizer).gateway().running() as gateway:
        yield gateway.url


async def bad(folder, spoil=lambda model, tokenizer: None):
    """Bad findings by name: what was found."""
    async with serving(folder, spoil) as url:
        found = await examine(url, str(folder), dtype="float32", push=False, bitwise=True)
    assert [each.check for each in found][:2] == ["tokens", "params"]
    assert len(found) == 5
    return {each.check: each.found for each in found if each.verdict != "good"}


BITS = {"bits at T=1", "bits at T=0.7", "bits, top_p=0.8, top_k=20"}


async def test_a_server_with_equal_bits(folder):
    assert await bad(folder) == {}


@pytest.mark.long
async def test_one_wrong_bit_in_the_params(folder):
    def flip(model, tokenizer):
        octets = model.model.layers[1].mlp.up_proj.weight.view(torch.uint8)
        octets[7, 3] ^= 1

    found = await bad(folder, flip)
    assert found["params"].startswith("1 of 24 params differ at version 'default': ")
    assert found["params"].endswith("model.layers.1.mlp.up_proj.weight")


@pytest.mark.long
async def test_stale_params(folder):
    def older(model, tokenizer):
        for param in model.parameters():
            param.mul_(1.01)

    found = await bad(folder, older)
    assert found.keys() == {"params", *BITS}
    assert found["params"].startswith("24 of 24 params differ at version 'default'")
    assert "the params are others" in found["bits at T=1"]


@pytest.mark.long
async def test_wrong_type(folder):
    found = await bad(folder, lambda model, tokenizer: model.bfloat16())
    assert found["params"] == "24 of 24 params differ at version 'default': they are bfloat16"
    assert found.keys() >= BITS


@pytest.mark.long
async def test_wrong_temperature(folder, monkeypatch):
    def warmer(logits, draws, uniform):
        draws = draws.copy()
        draws["temperature"] *= 1.3
        return choose(logits, draws, uniform)

    monkeypatch.setattr(batch, "choose", warmer)
    found = await bad(folder)
    assert found.keys() == BITS


async def test_wrong_template(folder):
    def other(model, tokenizer):
        tokenizer.chat_template = "{{ messages[0].content }}"

    found = await bad(folder, other)
    assert found.keys() == {"tokens"}
    assert "the server renders" in found["tokens"]


async def test_wrong_mask(folder, monkeypatch):
    def one_more(logits, draws, uniform):
        drawn = choose(logits, draws, uniform)
        # Slices, since masks of the whole vocabulary have no token left to add.
        masks = [
            None if mask is None else np.append(mask, np.setdiff1d(np.arange(99), mask)[:1])
            for mask in drawn.masks
        ]
        return replace(drawn, masks=masks)

    monkeypatch.setattr(batch, "choose", one_more)
    found = await bad(folder)
    assert found.keys() == {"bits, top_p=0.8, top_k=20"}
    assert found["bits, top_p=0.8, top_k=20"].endswith("the sampling masks are others")
