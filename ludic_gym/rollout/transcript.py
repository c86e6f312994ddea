"""Episodes to read, as text and as HTML for notebooks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

from ludic_gym.rollout.outcome import outcome, succeeded
from ludic_gym.types import Episode, Rollout, Step

# Characters of a transcript in a notebook.
MOST_CHARS = 8_000
_STYLE = "white-space: pre-wrap; text-align: left; margin: 0.5em 0"


@dataclass(frozen=True, slots=True, repr=False)
class Transcript:
    """An episode to read, as `print` or a notebook shows it.

    wrong: number of the first turn whose reply went wrong, from 0: without a legal action, cut off
        or empty; else the last one of an episode without success. None for a good episode, and for
        one that its environment or infrastructure ended.
    """

    episode: Episode

    @property
    def wrong(self) -> int | None:
        """See the class."""
        for rollout in self.episode.rollouts:
            for number, step in enumerate(rollout.steps):
                if step.illegal or step.decision.cut_off or step.decision.empty:
                    return number
            if rollout.steps and succeeded(rollout) is False:
                return len(rollout.steps) - 1
        return None

    def __str__(self) -> str:
        episode = self.episode
        if not episode.rollouts:
            return f"{episode.task.env_id} seed {episode.task.seed}\n\n{episode.error}"
        return "\n\n".join(rollout_text(rollout) for rollout in episode.rollouts)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        # Imported here: most programs show no HTML.
        from ludic_gym.tools.tool import shorten

        return f'<pre style="{_STYLE}">{escape(shorten(str(self), MOST_CHARS))}</pre>'


def rollout_text(rollout: Rollout) -> str:
    """The rollout as text: observations, replies, outcome and reward."""
    turns = [f"{step.observation}\n> {reply_text(step)}" for step in rollout.steps]
    ending = f"{outcome(rollout)}, reward {rollout.total_reward:g}"
    heading = f"{rollout.task.env_id} {dict(rollout.task.kwargs)} seed {rollout.task.seed}"
    return "\n\n".join([heading, *turns, f"{rollout.final_observation}\n{ending}"])


def reply_text(step: Step) -> str:
    """The text of the last model call of a step, or the action of a policy without a model."""
    calls = step.decision.completions
    return calls[-1].text if calls else str(step.decision.action)


def first_failure(episodes: Iterable[Episode]) -> Transcript | None:
    """The first episode with a reply that went wrong, None if there is none."""
    return next((t for t in map(Transcript, episodes) if t.wrong is not None), None)
