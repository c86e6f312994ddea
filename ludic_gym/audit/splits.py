"""Overlap of the splits of an environment."""

from __future__ import annotations

import hashlib
import io
import pickle
import re

from ludic_gym.audit.subject import AuditSubject, in_budget
from ludic_gym.data.contamination import Overlap, overlap
from ludic_gym.envs.core.one_player import SolitaireEnv
from ludic_gym.envs.core.question import QuestionEnv
from ludic_gym.errors import ConfigError
from ludic_gym.types import Env

# Seeds of a split that are compared; of data, all rows are.
TASKS = 2_000
_IGNORED = re.compile("split|generator|seed|random")


def split_overlap(subject: AuditSubject, tasks: int = TASKS) -> Overlap:
    """Overlap of the texts of the train and the test split.

    A text is the first observation. Of a game that hides a number, a word or a board, it is that;
    of other tasks with a state, a hash of the state follows, because tasks that begin with the same
    sentence may differ in what the player finds later.
    tasks: seeds from 0 of each split, where it has no rows; of rows, all are compared. Fewer of
        either if `subject.budget_s` are over before.
    Raises ConfigError if the environment has no splits, DataError if their rows are not there.
    """
    train, test = (texts_of(subject, split, tasks) for split in ("train", "test"))
    return overlap(train, test)


def texts_of(subject: AuditSubject, split: str, tasks: int = TASKS) -> list[str]:
    """Texts of all rows of a split, or of the first seeds where it has none, within the budget."""
    if "split" in subject.kwargs:
        raise ConfigError(f"both splits are compared: leave out split={subject.kwargs['split']!r}")
    try:
        env = subject.make(split=split)
    except TypeError as error:
        if "'split'" not in str(error):
            raise
        raise ConfigError(f"{subject.env_id} has no splits: {error}") from error
    rows = getattr(env.unwrapped, "num_rows", None)
    numbers = in_budget(range(tasks if rows is None else rows), subject.budget_s)
    return [_text(env, number, is_row=rows is not None) for number in numbers]


def _text(env: Env, number: int, *, is_row: bool) -> str:
    options = {"row": number} if is_row else None
    observation, _ = env.reset(seed=number, options=options)
    inner = env.unwrapped
    if isinstance(inner, SolitaireEnv):
        return inner.game()
    return observation if isinstance(inner, QuestionEnv) else f"{observation} {_state(inner)}"


def _state(env: Env) -> str:
    """A hash of the state of an environment without its generator and its split."""
    state = {name: value for name, value in vars(env).items() if not _IGNORED.search(name)}
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer)
    # Without references to what was pickled before: equal texts need not be one object.
    pickler.fast = True
    pickler.dump(state)
    return hashlib.blake2b(buffer.getvalue(), digest_size=16).hexdigest()
