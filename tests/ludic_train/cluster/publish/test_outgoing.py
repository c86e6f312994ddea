"""Params on their way out: finite, and in the type of the servers."""

import math

import pytest
import torch
from fake_vllm.fleet import digest, running
from torch import nn

from ludic_train.cluster.publish.outgoing import float32_modules, outgoing
from ludic_train.cluster.publish.tcp import TcpWire
from ludic_train.cluster.publish.transports import FileWire
from ludic_train.cluster.publish.vllm import VLLMPublisher
from ludic_train.errors import PublishError


class Router(nn.Module):
    """As transformers names them."""

    _keep_in_fp32_modules = None
    _keep_in_fp32_modules_strict = ("score_bias",)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_param_with_a_value_that_is_no_number_is_refused(value):
    params = {"a": torch.ones(3), "b": torch.tensor([1.0, value])}
    checked = outgoing(params.items(), None)
    assert next(checked)[0] == "a"
    with pytest.raises(PublishError, match="b has 1 of 2 values that are NaN or infinite"):
        next(checked)


def test_large_values_whose_sum_overflows_are_not_refused():
    # 3e38 + 3e38 is above the largest float32, 3.4e38.
    (name, tensor), *_ = outgoing([("a", torch.full((2,), 3e38))], None)
    assert (name, tensor.tolist()) == ("a", torch.full((2,), 3e38).tolist())


def test_values_that_overflow_in_the_shorter_type_are_refused():
    with pytest.raises(PublishError, match="a has 1 of 2 values"):
        list(outgoing([("a", torch.tensor([1.0, 1e6]))], "float16"))


def test_float32_params_are_rounded_to_the_type_of_the_servers():
    params = {
        "w": torch.tensor([1.0 + 2**-9]),
        "score_bias": torch.tensor([1.0 + 2**-9]),
        "counts": torch.tensor([3]),
        "half": torch.tensor([1.5], dtype=torch.float16),
    }
    sent = dict(outgoing(params.items(), "bfloat16", Router()))
    # bfloat16 has 8 bits of precision: 1 + 2^-9 rounds to 1.
    assert (sent["w"].dtype, sent["w"].item()) == (torch.bfloat16, 1.0)
    assert sent["score_bias"].dtype == torch.float32
    assert sent["counts"].dtype == torch.int64
    assert sent["half"].dtype == torch.float16
    for dtype in (None, "", "float32", "auto"):
        assert dict(outgoing(params.items(), dtype))["w"].dtype == torch.float32


def test_a_model_names_its_float32_modules_below_any_wrapper():
    assert float32_modules(nn.Sequential(nn.Linear(1, 1), Router())) == {"score_bias"}
    assert float32_modules(None) == set()


@pytest.mark.parametrize("wire", [TcpWire, FileWire])
async def test_nan_reaches_no_server_and_the_next_publication_works(wire):
    before = {"a": torch.zeros(3), "b": torch.zeros(2)}
    after = {"a": torch.ones(3), "b": torch.ones(2)}
    broken = {**after, "b": torch.tensor([1.0, math.nan])}
    async with running(2, before) as servers:
        target = VLLMPublisher([server.url for server in servers], wire(), chunk_bytes=1)
        with pytest.raises(PublishError, match="b has 1 of 2 values"):
            await target.publish(iter(broken.items()), 1)
        for server in servers:
            assert (server.version, digest(server.params)) == ("default", digest(before))
            assert not server.paused
            assert "/pause" not in server.calls
        await target.publish(iter(after.items()), 2)
        for server in servers:
            assert (server.version, digest(server.params)) == ("2", digest(after))


@pytest.mark.parametrize("dtypes", [("torch.bfloat16",) * 2, ("torch.bfloat16", "torch.float32")])
async def test_the_type_is_that_of_all_servers_or_the_trainers(dtypes):
    params = {"a": torch.tensor([1.0 + 2**-9])}
    async with running(2, params) as servers:
        for server, dtype in zip(servers, dtypes, strict=True):
            config = {"model_config": {"dtype": dtype}}
            server.answers["/server_info"] = {"vllm_config": config}
        await VLLMPublisher([server.url for server in servers], FileWire()).publish(
            params.items(), 1
        )
        usual = torch.bfloat16 if len(set(dtypes)) == 1 else torch.float32
        assert [server.params["a"].dtype for server in servers] == [usual] * 2
