"""Envs, rollouts and results as HTML in notebooks, with everything escaped.

`import ludic_gym` in a notebook enables it; so does `%load_ext ludic_gym.notebook`.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

import gymnasium as gym

from ludic_gym.envs.core.base import TextEnv
from ludic_gym.types import Episode, Rollout, Step

if TYPE_CHECKING:
    from ludic_gym.bench.result import BenchResult

# More would make the notebook slow to open.
MOST_TURNS = 50
_PRE = "margin:0.2em 0 0.4em;white-space:pre-wrap;text-align:left"


def load_ipython_extension(shell: Any) -> None:  # noqa: ANN401 - IPython is not needed to play
    """Render Ludic's objects as HTML in this shell; their classes are looked up by name."""
    html = shell.display_formatter.formatters["text/html"]
    renderers: dict[tuple[str, str], Callable[[Any], str | None]] = {
        ("ludic_gym.types", "Rollout"): rollout_html,
        ("ludic_gym.types", "Episode"): episode_html,
        ("ludic_gym.envs.core.base", "TextEnv"): env_html,
        ("gymnasium.core", "Wrapper"): _wrapped_html,
        ("ludic_gym.bench.result", "BenchResult"): result_html,
    }
    # By name, so that a notebook does not import what it never displays.
    for (module, name), function in renderers.items():
        html.for_type_by_name(module, name, function)


def rollout_html(rollout: Rollout) -> str:
    """The observation, the reply and the reward of each turn."""
    turns = [_turn(i, step) for i, step in enumerate(rollout.steps[:MOST_TURNS], 1)]
    rest = len(rollout.steps) - MOST_TURNS
    more = f"<p>{rest} more turns</p>" if rest > 0 else ""
    head = f"{rollout.task.env_id}, {rollout.agent}, reward {rollout.total_reward:g}"
    end = _pre(rollout.final_observation) if rollout.final_observation else ""
    return f"<div><b>{escape(head)}</b>{''.join(turns)}{more}{end}</div>"


def episode_html(episode: Episode) -> str:
    """The rollouts, or the reason of the failure."""
    if episode.error is not None:
        return f"<div><b>episode {episode.index} failed</b>{_pre(episode.error)}</div>"
    return "".join(map(rollout_html, episode.rollouts))


def env_html(env: TextEnv) -> str:
    """The env's name, and its picture if an episode has begun."""
    return f"<div><b>{escape(str(env))}</b>{_pre(env.picture())}</div>"


def _wrapped_html(env: gym.Wrapper[Any, Any, Any, Any]) -> str | None:
    """The HTML of a wrapped TextEnv; None for other envs, which notebooks show by their repr."""
    inner = env.unwrapped
    return env_html(inner) if isinstance(inner, TextEnv) else None


def result_html(result: BenchResult) -> str:
    """The results with their intervals."""
    low, high = result.success_interval
    rows = {
        "episodes": str(result.episodes),
        "success": f"{result.success_rate:.1%} [{low:.1%}, {high:.1%}]",
        "reward": f"{result.mean_reward:.3f}",
        "outcomes": ", ".join(f"{name} {count}" for name, count in result.outcomes.items()),
        "failed": str(len(result.errors)),
    }
    if result.reward_interval is not None:
        rows["reward"] += " [{:.3f}, {:.3f}]".format(*result.reward_interval)
    cells = [f"<tr><th>{name}</th><td>{escape(text)}</td></tr>" for name, text in rows.items()]
    return f"<table>{''.join(cells)}</table>"


def _turn(number: int, step: Step) -> str:
    action = step.decision.action
    # The last call: earlier ones of a turn are tool calls, retries or other candidates.
    reply = step.decision.completions[-1].text if step.decision.completions else action
    note = "" if action is not None else " (not parsed)"
    head = f"turn {number}, reward {step.reward:g}{note}"
    return (
        f"<p style='margin:0.6em 0 0'>{head}</p>{_pre(step.observation)}{_pre(reply or '', '3px')}"
    )


def _pre(text: str, border: str = "0") -> str:
    return (
        f"<pre style='{_PRE};border-left:{border} solid #888;padding-left:6px'>{escape(text)}</pre>"
    )
