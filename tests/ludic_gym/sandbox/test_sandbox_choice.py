import pytest

from ludic_gym.errors import ConfigError, NoSandbox
from ludic_gym.sandbox import choice
from ludic_gym.sandbox.choice import (
    chosen_name,
    open_sandbox,
    sandbox_names,
    shared_sandbox,
    why_not,
)


@pytest.fixture
def without_bwrap(monkeypatch, tmp_path):
    """A machine on whose PATH there is nothing, as far as back ends can tell."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(choice, "BACKENDS", {"bubblewrap": choice.BACKENDS["bubblewrap"]})
    why_not.cache_clear()
    yield
    why_not.cache_clear()


def test_nothing_safe_is_an_error_that_says_what_to_install(without_bwrap):
    with pytest.raises(NoSandbox, match=r"bubblewrap: bwrap is not installed.*apt install bubble"):
        open_sandbox()


def test_a_plain_process_is_used_where_nothing_is_safe_only_if_allowed(without_bwrap):
    sandbox = open_sandbox(allow_unsafe=True)
    assert sandbox.name == "process"
    assert not sandbox.guarantees.network


def test_a_plain_process_must_be_allowed():
    with pytest.raises(ConfigError, match="'process' protects nothing; allow_unsafe=True"):
        open_sandbox("process")


def test_unknown_names_are_told_the_known_ones():
    with pytest.raises(ConfigError, match=r"no sandbox 'chroot'; there are auto, bubblewrap"):
        open_sandbox("chroot")


def test_the_one_that_was_named_is_not_replaced(without_bwrap):
    with pytest.raises(NoSandbox, match="bwrap is not installed"):
        open_sandbox("bubblewrap", allow_unsafe=True)


def test_auto_takes_the_first_that_works():
    working = [name for name in choice.BACKENDS if not why_not(name)]
    assert chosen_name("auto", allow_unsafe=True) == [*working, "process"][0]
    assert sandbox_names()[0] == "bubblewrap"


def test_a_shared_sandbox_is_one_object():
    assert shared_sandbox("process", allow_unsafe=True) is shared_sandbox(
        "process", allow_unsafe=True
    )
