import importlib
import time
from typing import ClassVar

import gymnasium as gym
import pytest

from ludic_gym.envs.core.base import TextEnv, end
from ludic_gym.errors import ContractError
from ludic_gym.testing.scale import SCALE_RULES

LEAK = []


class Sound(TextEnv):
    """One turn; what it shows is up to the seed."""

    def start(self, options):
        return str(self.np_random.integers(100)), {"system_prompt": ""}

    def turn(self, action):
        return end(action, success=False)


class OrderOfASet(Sound):
    def start(self, options):
        return " ".join({"ace", "king", "queen", "jack", "ten"}), {"system_prompt": ""}


class Remembers(Sound):
    past = ()

    def start(self, options):
        self.past = (*self.past, f"episode {len(self.past)}")
        return super().start(options)


class Leaks(Sound):
    def start(self, options):
        LEAK.append("x" * 5000 + str(len(LEAK)))
        return super().start(options)


class Caches(Sound):
    """Keeps something for every question, but there are only so many questions."""

    def start(self, options):
        text, info = super().start(options)
        CACHE.setdefault(text, "x" * 5000 + text)
        return text, info


CACHE = {}


class OnlyHere(Sound):
    """Cannot be made where no device is plugged in."""

    def __init__(self, render_mode=None):
        super().__init__(render_mode)
        if not LEAK:
            raise OSError("there is no device here")


def broken(cls, rule):
    """Complaint of the rule with these words about the class, "" for none."""
    env_id = f"broken/{cls.__name__}-v0"
    gym.register(env_id, f"{__name__}:{cls.__name__}", order_enforce=False)
    (check,) = (check for words, check in SCALE_RULES if rule in words)
    try:
        check(lambda: gym.make(env_id))
    except ContractError as error:
        return str(error)
    finally:
        del gym.registry[env_id]
    return ""


@pytest.mark.parametrize("rule", [words for words, _ in SCALE_RULES])
def test_a_sound_environment_keeps_the_rule(rule):
    assert broken(Sound, rule) == ""


def test_the_order_of_a_set_is_another_in_another_process():
    found = broken(OrderOfASet, "in every process")
    assert "in this process, and in one with PYTHONHASHSEED=" in found
    assert "queen" in found


def test_what_cannot_be_played_elsewhere_is_told_with_the_reason():
    LEAK.append("a device")
    found = broken(OnlyHere, "in every process")
    LEAK.clear()
    assert "another process cannot play it" in found
    assert "OSError: there is no device here" in found


def test_a_state_that_grows_is_found():
    found = broken(Remembers, "no more memory")
    assert "episodes more made its pickle" in found


def test_a_module_that_remembers_every_episode_is_found_with_its_line():
    found = broken(Leaks, "no more memory")
    LEAK.clear()
    assert "episodes more left" in found
    assert "test_scale.py" in found


class Slow(Sound):
    """Takes as long as running a program does."""

    episodes: ClassVar = []

    def start(self, options):
        self.episodes.append(1)
        time.sleep(0.025)
        return super().start(options)


def test_of_slow_environments_fewer_episodes_are_played():
    assert broken(Slow, "no more memory") == ""
    # Ten to see how long they take, then fifty.
    assert len(Slow.episodes) == 60


def test_a_cache_is_no_leak():
    assert broken(Caches, "no more memory") == ""


def test_a_module_that_checks_itself_when_it_is_imported_starts_no_endless_processes(
    tmp_path, monkeypatch
):
    (tmp_path / "checks_itself.py").write_text(
        "import gymnasium as gym\n"
        "import ludic_gym as lg\n"
        "class Coin(lg.TextEnv):\n"
        "    def start(self, options):\n"
        "        return 'Heads?', ''\n"
        "    def turn(self, action):\n"
        "        return lg.end(success=action == 'yes')\n"
        "gym.register('checks-itself/Coin-v0', 'checks_itself:Coin')\n"
        "lg.check_text_env('checks-itself/Coin-v0')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ContractError, match=r"when it is imported.*__main__"):
        importlib.import_module("checks_itself")
