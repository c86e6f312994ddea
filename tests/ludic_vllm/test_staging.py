"""Params that are prepared beside the server's work, and the checks before they may be put in."""

import threading
import time

import pytest
import torch
from safetensors.torch import save_file

from ludic_vllm.files import format_of
from ludic_vllm.staging import Staging

PARAMS = {"a": torch.arange(6.0).view(2, 3), "b": torch.full((5,), 7.0)}
FORMATS = {name: format_of(param) for name, param in PARAMS.items()}


class Twin:
    """Takes params when `go` is set, and fails with `error`."""

    def __init__(self, error=None):
        self.session, self.loaded, self.error = 0, [], error
        self.go = threading.Event()
        self.go.set()

    def begin(self):
        self.session += 1
        return self.session

    def load(self, session, params):
        self.go.wait(30)
        if self.error:
            raise self.error
        if session != self.session:
            return False
        self.loaded.append({name: param.tolist() for name, param in params.items()})
        return True


@pytest.fixture
def folder(tmp_path):
    save_file(PARAMS, tmp_path / "params.safetensors")
    return str(tmp_path)


def staging_with(twin):
    return Staging(FORMATS, {torch.float32}, twin)


def settle(staging):
    while not staging.state["settled"]:
        time.sleep(0.01)
    return staging.state


def test_params_are_prepared_while_the_caller_continues(folder):
    twin = Twin()
    twin.go.clear()
    staging = staging_with(twin)
    staging.stage(folder)
    # Here the server would sample.
    assert staging.state == {"settled": False, "error": "", "prepared": False}
    twin.go.set()
    assert settle(staging) == {"settled": True, "error": "", "prepared": True}
    assert staging.take().keys() == PARAMS.keys()
    assert twin.loaded == [{name: param.tolist() for name, param in PARAMS.items()}]


def test_params_are_put_in_once(folder):
    staging = staging_with(None)
    staging.stage(folder)
    assert settle(staging) == {"settled": True, "error": "", "prepared": False}
    assert torch.equal(staging.take()["a"], PARAMS["a"])
    with pytest.raises(ValueError, match="the update has no params"):
        staging.take()


def test_params_of_another_model_are_refused_and_nothing_is_staged(folder):
    twin = Twin()
    staging = Staging({"a": FORMATS["a"]}, (), twin)
    with pytest.raises(ValueError, match="no params of b"):
        staging.stage(folder)
    with pytest.raises(ValueError, match="the update has no params"):
        staging.take()
    assert twin.loaded == []


def test_params_of_a_model_that_cannot_be_prepared_are_loaded_in_the_pause(folder, caplog):
    staging = staging_with(Twin(KeyError("layers.0")))
    for _ in range(2):
        staging.stage(folder)
        assert settle(staging) == {"settled": True, "error": "", "prepared": False}
        assert staging.take().keys() == PARAMS.keys()
    # It is tried once.
    (message,) = caplog.messages
    assert "layers.0" in message


def test_a_model_that_was_prepared_before_is_not_put_in_after_an_error(folder):
    twin = Twin()
    staging = staging_with(twin)
    staging.stage(folder)
    settle(staging)
    staging.take()
    twin.error = RuntimeError("no memory")
    staging.stage(folder)
    assert settle(staging)["error"] == "RuntimeError: no memory"
    with pytest.raises(ValueError, match="no memory"):
        staging.take()


def test_a_session_that_ends_stops_its_thread_and_says_nothing_of_the_next(folder):
    twin = Twin()
    twin.go.clear()
    staging = staging_with(twin)
    staging.stage(folder)
    staging.drop()
    staging.stage(folder)
    twin.go.set()
    settle(staging)
    # The first thread has found its session ended.
    assert len(twin.loaded) == 1
    assert staging.take().keys() == PARAMS.keys()
