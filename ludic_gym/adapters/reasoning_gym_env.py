"""ReasoningGymEnv: a data set of reasoning-gym (Stojanovski et al. 2025, arXiv:2505.24760)."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ludic_gym.adapters.generators import lent_generators, seeded_state
from ludic_gym.adapters.mends import ANSWERS, ENTRIES
from ludic_gym.concurrency import Caught
from ludic_gym.envs.core.base import Info, TextEnv, Turn, checked_choice, end
from ludic_gym.errors import ConfigError
from ludic_gym.packages import optional

PROMPT = (
    "Answer the question. Give just the answer, in the form that the question asks for, in "
    "<answer></answer> tags."
)
MODES = ("strict", "raw")
_TAGGED = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
# It is not farther from any number than a scorer allows: min(1.0, exp(-nan)) is 1.0.
_NOT_A_NUMBER = re.compile(r"\bnanj?\b", re.IGNORECASE)
# No names in small letters outside of quotes: the scorer's own variables hold the answer.
_ITEMS = re.compile(r"(?=.{0,2000}\Z)(?:[A-Z\d\s_\[\],]|'[\w\s,]*'|\"[\w\s,]*\")*", re.DOTALL)
_ARITHMETIC = re.compile(r"(?!.*\*\s*\*)[\d\s()+*/.-]{0,200}", re.DOTALL)
# These scorers evaluate answers as Python, so they get only harmless texts.
GUARDS: Mapping[str, re.Pattern[str]] = {
    "binary_matrix": _ITEMS,
    "countdown": _ARITHMETIC,
    "n_queens": _ITEMS,
    "puzzle24": _ARITHMETIC,
    "spiral_matrix": _ITEMS,
    "string_insertion": _ITEMS,
}
# A guard cannot tell a program from an answer there, or does not know whose answer it is.
UNSAFE: Mapping[str, str] = {
    **dict.fromkeys(
        ("intermediate_integration", "polynomial_multiplication", "simple_integration"),
        "its scorer runs answers as Python",
    ),
    "composite": "it consists of other data sets, whose scorers may run answers as Python",
}


class ReasoningGymEnv(TextEnv):
    """A puzzle from a data set of reasoning-gym with its own scorer. Requires `adapters`.

    dataset: its name in reasoning-gym, such as "chain_sum".
    mode: "strict" pays 1 for a score of 1 and 0 for less, "raw" pays the score, from 0 to 1.
        Success is a score of 1 in both.
    size, data_seed: number of puzzles, and the seed that generates them.
    config: settings of the data set: {"min_terms": 2}.

    Observation: the question. Action: the answer, in tags or without. The last info has "score",
    "answer" and "truth". A puzzle is generated at its first use, which may take a second, and kept.
    """

    single_turn = True

    def __init__(
        self,
        dataset: str,
        mode: str = "strict",
        size: int = 1000,
        data_seed: int = 0,
        config: Mapping[str, Any] | None = None,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        self._mode = checked_choice("mode", mode, MODES)
        if dataset in UNSAFE:
            raise ConfigError(f"{dataset!r} cannot be played: {UNSAFE[dataset]}")
        # As text, because the arguments are a key of the caches below.
        self._set = (dataset, json.dumps(dict(config or {}), sort_keys=True), data_seed, size)
        self._dataset = dataset
        self.num_rows = size
        # Errors are raised here, because `step` must accept any text.
        puzzles(*self._set)

    def start(self, options: Mapping[str, Any]) -> tuple[str, Info]:
        """Draw a puzzle."""
        row, size = options.get("row"), self._set[3]
        self._place = int(self.np_random.random() * size) if row is None else row
        question: str = puzzle(self._set, self._place)["question"]
        return question, {"system_prompt": PROMPT, "row": self._place, "dataset": self._dataset}

    def turn(self, action: str) -> Turn:
        """Score the answer and end the episode."""
        answer = answer_of(action)
        score, complaint = self._score(answer)
        reward = score if self._mode == "raw" else float(score >= 1.0)
        info = {"score": score, "answer": answer, "truth": self._truth(), "scorer_error": complaint}
        return end(success=score >= 1.0, info=info, score=reward)

    def _score(self, answer: str) -> tuple[float, str]:
        entry = puzzle(self._set, self._place)
        may_score = ANSWERS.get(self._dataset)
        if may_score is not None and not may_score(answer, entry):
            return 0.0, "refused: it has not the numbers of the task"
        guard = GUARDS.get(self._dataset)
        if guard is not None and not guard.fullmatch(answer):
            return 0.0, "refused: this scorer runs answers as Python"
        if _NOT_A_NUMBER.search(answer) and not _NOT_A_NUMBER.search(self._truth()):
            return 0.0, "refused: nan has no distance from a number"
        score = 0.0
        # Scorers assume a well-formed answer, and raise any error for others.
        with Caught(Exception) as failure:
            score = min(max(float(puzzles(*self._set).score_answer(answer, entry)), 0.0), 1.0)
        return score, repr(failure.error) if failure.error else ""

    def _truth(self) -> str:
        return str(puzzle(self._set, self._place)["answer"])

    def best_action(self) -> str:
        """The data set's own answer."""
        return f"<answer>{self._truth()}</answer>"


def answer_of(text: str) -> str:
    """The content of the tags after the last thought, else all text.

    "" if tags differ, or for a thought that is not closed.

    >>> answer_of("<think>5 or 6</think> <answer>5</answer>"), answer_of("5")
    ('5', '5')
    """
    _, closed, reply = text.rpartition("</think>")
    if not closed and "<think>" in reply:
        return ""
    # Up to the last closing tag: each opening tag after it would be followed to the end.
    answers = _TAGGED.findall(reply[: reply.rfind("</answer>") + len("</answer>")])
    tagged = {answer.strip("\n") for answer in answers}
    # Several different answers would let a model guess more than once.
    if len(tagged) > 1:
        return ""
    return next(iter(tagged), reply.strip("\n"))


@lru_cache(maxsize=128)
def puzzles(name: str, config: str, data_seed: int, size: int) -> Any:  # noqa: ANN401 (not typed)
    """The data set. Raises ConfigError if it is unknown or rejects its settings.

    config: JSON of its settings. data_seed, size: see `ReasoningGymEnv`.
    """
    package = optional("reasoning_gym", "ludic-gym[adapters]")
    try:
        # Some data sets leave files open.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            return package.create_dataset(name, seed=data_seed, size=size, **json.loads(config))
    except (ValueError, TypeError, AssertionError) as error:
        raise ConfigError(
            f"reasoning-gym cannot make {name!r} with {config}, data_seed={data_seed!r} and "
            f"size={size!r}: {error}"
        ) from error


@lru_cache(maxsize=4096)
def puzzle(key: tuple[str, str, int, int], row: int) -> dict[str, Any]:
    """One puzzle, with its mended answer if the package's is known to be wrong."""
    # Some data sets draw from the global generators, which other code may have seeded.
    with lent_generators(seeded_state(row)):
        entry: dict[str, Any] = puzzles(*key)[row]
    return ENTRIES.get(key[0], dict)(entry)
