"""No task of an environment is in both of its splits."""

import hashlib
import io
import pickle
import re

import gymnasium as gym
import pytest

import ludic_gym
from envs_registry.catalog import CATALOG
from ludic_gym.envs.core.one_player import SolitaireEnv
from ludic_gym.envs.core.question import QuestionEnv

IGNORED = re.compile("split|generator|seed|random")


def state_of(env):
    """A hash of the state without its generator and its split."""
    state = {name: value for name, value in vars(env).items() if not IGNORED.search(name)}
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer)
    # Without references to what was pickled before: equal texts need not be one object.
    pickler.fast = True
    pickler.dump(state)
    return hashlib.blake2b(buffer.getvalue(), digest_size=16).hexdigest()


def tasks(env_id, split, count):
    """Texts of the first tasks: of a hidden game that, else the observation and the state."""
    env = gym.make(env_id, split=split)
    inner = env.unwrapped
    for seed in range(count):
        text, _ = env.reset(seed=seed)
        if isinstance(inner, SolitaireEnv):
            yield inner.game()
        else:
            yield text if isinstance(inner, QuestionEnv) else f"{text} {state_of(inner)}"


@pytest.mark.parametrize("name", ["LiarsDice", "FunctionCalls", "Werewolf", "CustomerDesk"])
def test_equal_tasks_with_a_state_have_equal_texts(name):
    first, again = (list(tasks(f"ludic/{name}-v0", "train", 4)) for _ in range(2))
    assert first == again
    assert len(set(first)) == 4


@pytest.mark.slow
@pytest.mark.parametrize("entry", CATALOG, ids=lambda entry: entry.id)
def test_no_generated_task_is_in_both_splits(entry):
    try:
        train, test = ({*tasks(entry.id, split, 300)} for split in ("train", "test"))
    except (TypeError, ludic_gym.DataError) as error:
        pytest.skip(f"it has no splits here: {error}")
    assert not train & test
