"""Params on their way out: finite, in the type of the servers, and in files that end."""

import math
import resource
import subprocess

import forked
import pytest
import torch
from fake_vllm.fleet import digest, running
from torch import nn

from ludic_train.cluster.publish import files
from ludic_train.cluster.publish.files import (
    FilesPublisher,
    folder_for,
    local_folder,
    new_folder,
    outgoing,
    write_params,
)
from ludic_train.errors import PublishError
from ludic_vllm.files import params_in


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


async def test_nan_reaches_no_server_and_the_next_publication_works():
    before = {"a": torch.zeros(3), "b": torch.zeros(2)}
    after = {"a": torch.ones(3), "b": torch.ones(2)}
    broken = {**after, "b": torch.tensor([1.0, math.nan])}
    async with running(2, before) as servers:
        target = FilesPublisher([server.url for server in servers])
        with pytest.raises(PublishError, match="b has 1 of 2 values"):
            await target.publish(iter(broken.items()), 1)
        for server in servers:
            assert (server.version, digest(server.params)) == ("default", digest(before))
            assert not server.paused
            assert "/start_weight_update" not in server.calls
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
        target = FilesPublisher([server.url for server in servers])
        await target.publish(params.items(), 1)
        usual = torch.bfloat16 if len(set(dtypes)) == 1 else torch.float32
        assert [server.params["a"].dtype for server in servers] == [usual] * 2


PARAMS = [("a", torch.ones(3)), ("empty", torch.ones(0)), ("turned", torch.eye(2)[:, :1].T)]


@pytest.mark.parametrize(("file_bytes", "count"), [(2**30, 1), (12, 2), (1, 3)])
async def test_files_hold_all_params_and_have_a_limit(tmp_path, file_bytes, count):
    await write_params(tmp_path / "new", iter(PARAMS), file_bytes=file_bytes)
    assert len(list((tmp_path / "new").iterdir())) == count
    found = dict(params_in(tmp_path / "new"))
    assert {name: param.tolist() for name, param in found.items()} == {
        name: param.tolist() for name, param in PARAMS
    }


async def test_a_publication_leaves_no_files(tmp_path):
    params = {"a": torch.zeros(3)}
    async with running(1, params) as (server,):
        target = FilesPublisher(server.url, tmp_path)
        await target.publish(params.items(), 1)
        assert list(tmp_path.iterdir()) == []
        server.faults["/update_weights"] = "500"
        with pytest.raises(PublishError):
            await target.publish(params.items(), 2)
    assert list(tmp_path.iterdir()) == []


HOLDER = """
import sys, time
from pathlib import Path
from ludic_train.cluster.publish.files import new_folder

with new_folder(Path(sys.argv[1])):
    print("made", flush=True)
    while not Path(sys.argv[2]).exists():
        time.sleep(0.01)
"""


def test_files_of_a_killed_process_are_removed_by_the_next_one(monkeypatch, tmp_path):
    monkeypatch.setattr(files, "ORPHAN_S", 0)
    end, parent = tmp_path / "end", tmp_path / "params"
    words = ["-c", HOLDER, str(parent), str(end)]
    killed, living = (forked.Python(words, stdout=subprocess.PIPE) for _ in range(2))
    with killed, living:
        assert [each.stdout.readline() for each in (killed, living)] == ["made\n"] * 2
        killed.kill()
        killed.wait()
        with new_folder(parent):
            # Its own, and that of the process that lives.
            assert len(list(parent.iterdir())) == 2
        end.touch()
        living.wait()
    assert list(parent.iterdir()) == []


async def test_a_file_system_without_room_is_an_error_and_no_crash(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(PublishError, match="cannot write"):
            await write_params(tmp_path, [("a", torch.ones(1000))])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_shared_memory_is_for_servers_of_this_machine_and_models_that_fit(tmp_path):
    assert folder_for(["http://localhost:1", "http://127.0.0.1:2/v1"], tmp_path) is None
    assert folder_for(["http://localhost:1", "http://there:2"], tmp_path) == tmp_path
    assert local_folder(nn.Linear(2, 2)) == files.SHARED_MEMORY
    with torch.device("meta"):
        assert local_folder(nn.Linear(2**24, 2**24)) != files.SHARED_MEMORY
