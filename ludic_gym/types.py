"""What flows from an environment to a trainer: frozen data, no logic.

The words mean the same everywhere: a `Task` says what to play, an `Episode` is one run of it, a
`Rollout` is one agent's record of that run, a `Step` is one turn, a `Decision` is what the policy
chose in that turn, a `Completion` is one model call behind the decision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NotRequired, Protocol, TypedDict

import gymnasium as gym

FinishReason = Literal["stop", "length", "tool_calls"]
Env = gym.Env[str, str]


class FunctionCall(TypedDict):
    """The function part of a tool call; `arguments` is JSON text as the model wrote it."""

    name: str
    arguments: str


class MessageToolCall(TypedDict):
    """A tool call inside an assistant message."""

    id: str
    type: Literal["function"]
    function: FunctionCall


class Message(TypedDict):
    """One chat message, in the form chat templates and chat APIs take.

    content is None only in an assistant message that holds nothing but tool calls.
    name: set on a user message that carries a tool's result instead of an observation.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: str | None
    name: NotRequired[str]
    tool_calls: NotRequired[list[MessageToolCall]]
    tool_call_id: NotRequired[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A model's wish to run a tool. `arguments` is JSON text as the model wrote it, unchecked."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How one completion is sampled.

    temperature 0 is greedy. `max_tokens` bounds the completion, its stop token included. `stop`
    holds strings that end it; they are not part of the text. Equal seeds give equal text.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 256
    stop: tuple[str, ...] = ()
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One model call, token-in and token-out.

    completion_ids: exactly the ids that were sampled, the end-of-turn token included.
    logprobs: nats, one per completion id, under the distribution that was sampled from
        (temperature and top_p applied).
    policy_version: the update that produced the params; where they changed while this was sampled,
        the oldest.
    versions: the update of each completion id, where the server tells.
    The first three are None where the endpoint does not tell; such completions cannot be trained
    on.
    """

    text: str
    finish_reason: FinishReason
    sampling: Sampling = Sampling()
    prompt_ids: tuple[int, ...] | None = None
    completion_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    policy_version: int | None = None
    versions: tuple[int, ...] | None = None
    tool_calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a policy chose in one turn.

    action: None means that nothing could be parsed: the env is not stepped, `reward` is the
        step's reward and `feedback` the next observation.
    completions: every model call of the turn, in order.
    give_up: why the policy ends the episode with this turn ("" if it does not): the rollout is
        truncated for that reason, a budget for instance.
    """

    action: str | None
    reward: float = 0.0
    feedback: str = ""
    completions: tuple[Completion, ...] = ()
    give_up: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One turn: what was seen, what was decided, what it earned (env reward + parser reward)."""

    observation: str
    decision: Decision
    reward: float
    terminated: bool = False
    truncated: bool = False
    info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What to play, and how to sample while playing it.

    env_id, kwargs: arguments of `gymnasium.make`.
    seed, options: arguments of `env.reset`; without a seed every episode is a new one.
    group: rollouts that share it are compared with each other by group-relative credit.
    max_turns: turns after which the episode is truncated.
    """

    env_id: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    options: Mapping[str, Any] | None = None
    group: str = ""
    sampling: Sampling = Sampling()
    max_turns: int = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One agent's record of one episode.

    agent: the env's name of the seat.
    player: who sat there, where seats rotate; "" where nobody named the players.
    """

    task: Task
    steps: tuple[Step, ...]
    agent: str = "agent"
    final_observation: str = ""
    player: str = ""

    @property
    def total_reward(self) -> float:
        """Undiscounted sum of the step rewards."""
        return sum(step.reward for step in self.steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One run of a task: a rollout per agent, or the error that ended it.

    index: the task's position in the iterable it came from.
    """

    index: int
    task: Task
    rollouts: tuple[Rollout, ...] = ()
    error: str | None = None


class Policy(Protocol):
    """Whatever acts: a model behind a chat client, a script, a human. Policies wrap policies."""

    def reset(self, system_prompt: str) -> None:
        """Start an episode; `system_prompt` is what the env suggests, "" for nothing."""

    def observe(self, text: str) -> None:
        """Take in the next observation or feedback."""

    async def act(self, sampling: Sampling) -> Decision:
        """Decide on the observations so far."""


# Policies are built for one env, because the reference ones (oracle, random) look into it.
MakePolicy = Callable[[Env], Policy]

# A function's name, description and JSON schema, in the form chat APIs and templates take:
# {"type": "function", "function": {"name": ..., "description": ..., "parameters": ...}}.
ToolSchema = Mapping[str, Any]


class ChatClient(Protocol):
    """Completes dialogs, many at a time."""

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, tools: Sequence[ToolSchema] = ()
    ) -> Completion:
        """The next assistant message.

        A dialog that ends with an assistant message has that message continued; the completion
        holds only what is new. Raises ClientError if there is no usable answer.
        """
