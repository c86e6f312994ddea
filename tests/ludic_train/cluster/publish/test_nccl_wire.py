"""The part of the NCCL wire that needs no GPU: requests to vLLM."""

import base64

import pytest
import torch

from ludic_gym.errors import ConfigError
from ludic_train.cluster.publish.nccl import NcclWire, nccl_init_info
from ludic_train.cluster.publish.transports import announcement
from ludic_vllm.wire import packed


def test_vllm_is_told_how_to_meet_and_how_the_stream_is_cut():
    assert nccl_init_info(b"\x01" * 128, world_size=5, buffer_bytes=1024) == {
        "nccl_unique_id_b64": base64.b64encode(b"\x01" * 128).decode(),
        "rank_offset": 1,
        "world_size": 5,
        "packed": True,
        "packed_buffer_size_bytes": 1024,
        "packed_num_buffers": 2,
    }


def test_params_are_announced_as_vllm_reads_them():
    params = [("a", torch.zeros(2, 3)), ("b", torch.zeros(4, dtype=torch.bfloat16))]
    (chunk,) = packed(params, chunk_bytes=100, alignment=1)
    assert announcement(chunk) == {
        "names": ["a", "b"],
        "dtype_names": ["float32", "bfloat16"],
        "shapes": [[2, 3], [4]],
    }


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_other_wires_are_named():
    with pytest.raises(ConfigError, match="TcpWire and FileWire work without"):
        NcclWire()
