"""Data between environments, policies and trainers: frozen, without logic.

A `Task` names an environment and a seed, an `Episode` is one run of it, a `Rollout` is one agent's
record of that run, a `Step` is one turn, a `Decision` is the policy's choice in that turn, and a
`Completion` is one model call behind the decision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NotRequired, Protocol, TypedDict

import gymnasium as gym

from ludic_gym.errors import Blame
from ludic_gym.trail import Trail, as_trail, float_numbers, token_ids

FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "refusal"]
"""The reason for which a model stopped: the last two are those of a vendor's filter, and its own.

Such a reply has no text, or a part of one."""
Env = gym.Env[str, str]
"""A Gymnasium environment with text observations and text actions."""


class FunctionCall(TypedDict):
    """The function part of a tool call; `arguments` is the model's JSON text."""

    name: str
    arguments: str


class MessageToolCall(TypedDict):
    """A tool call inside an assistant message."""

    id: str
    type: Literal["function"]
    function: FunctionCall


class Message(TypedDict):
    """One chat message, in the format of chat templates and chat APIs.

    content is None only in an assistant message with tool calls and no text.
    name: set on a user message with a tool's result instead of an observation.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: str | None
    name: NotRequired[str]
    tool_calls: NotRequired[list[MessageToolCall]]
    tool_call_id: NotRequired[str]


# All data is frozen: one object may be in a queue, a record and a batch at the same time. No
# argument is positional, so that a field can be added anywhere.
@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool call of a model. `arguments` is the model's JSON text, unchecked."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Sampling parameters of one completion.

    temperature 0 is greedy. `max_tokens` bounds the completion, its stop token included. `stop`
    holds strings that end it and are not part of the text. Equal seeds give equal texts.
    min_p, top_k and top_p leave tokens out, in this order: those with less than `min_p` of the
    likeliest token's probability, all but the `top_k` likeliest (0 leaves out none), and those
    beyond the smallest set that holds `top_p` of the rest.
    max_length: tokens of prompt and completion together; None for the limit of the model or server.
        A completion ends there as it does at `max_tokens`, and a prompt that leaves no token for
        one is a PromptTooLong.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    max_tokens: int = 256
    stop: tuple[str, ...] = ()
    seed: int | None = None
    max_length: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """A request to a chat server as it was sent, and the server's account of it.

    model, fingerprint: of the served model, by the response; "" where it has none.
    messages: the dialog as sent, the system prompt first; kept as a trail, like those of a
        `Completion`.
    parameters: all other fields of the request.
    usage: the response's count of tokens, as it stands there; some servers add the cost.
    seconds: from the request to the response, retries included. Calls that differ in nothing else
        are equal.
    """

    model: str
    fingerprint: str = ""
    messages: Sequence[Message] = field(default=(), repr=False)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    usage: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = field(default=0.0, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "messages", as_trail(self.messages))


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One model call, token-in and token-out.

    completion_ids: exactly the ids that were sampled, the end-of-turn token included.
    logprobs: nats, one per completion id, under the distribution that was sampled from
        (temperature, top_p, top_k and min_p applied).
    sampling_mask: the tokens that each completion id was drawn from, as `packed_masks` packs them;
        None where the sampling leaves none out, or the endpoint does not return them.
    policy_version: the update that produced the params; the oldest one if they changed during
        sampling.
    versions: the update of each completion id, if the server returns it.
    routed_experts: of a mixture of experts whose server returns them, a .npy file in base64:
        integers [prompt and completion - 1, layers, k], the experts that each token went through.
    reasoning: the model's reasoning, where the server returns it apart from the text.
    call: the request, from clients whose servers return no token ids.
    Token ids and log-probs are None if the endpoint does not return them. Such completions cannot
    be trained on. They and the versions are kept as trails, whatever sequence they were given as:
    the prompt of a call that continues another one takes no memory for the tokens of that.
    """

    text: str
    finish_reason: FinishReason
    sampling: Sampling = Sampling()
    prompt_ids: Sequence[int] | None = None
    completion_ids: Sequence[int] | None = None
    logprobs: Sequence[float] | None = None
    sampling_mask: bytes | None = field(default=None, repr=False)
    policy_version: int | None = None
    versions: Sequence[int] | None = None
    routed_experts: str | None = field(default=None, repr=False)
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    call: ModelCall | None = None

    def __post_init__(self) -> None:
        for name, make in _TRAILS:
            value = getattr(self, name)
            if value is not None and type(value) is not Trail:
                object.__setattr__(self, name, make(value))


_TRAILS: Sequence[tuple[str, Callable[[Any], Trail[Any]]]] = (
    ("prompt_ids", token_ids),
    ("completion_ids", token_ids),
    ("logprobs", float_numbers),
    ("versions", token_ids),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A policy's choice in one turn.

    action: None for a parse failure: the env is not stepped, `reward` is the step's reward and
        `feedback` the next observation.
    completions: every model call of the turn, in order.
    give_up: a reason for which the policy ends the episode with this turn, such as a budget; the
        rollout is truncated for that reason. "" to continue.
    """

    action: str | None
    reward: float = 0.0
    feedback: str = ""
    completions: tuple[Completion, ...] = ()
    give_up: str = ""

    @property
    def cut_off(self) -> bool:
        """True if the turn's last model call ran into its limit of tokens.

        Earlier ones were continued, or were not the reply.
        """
        return bool(self.completions) and self.completions[-1].finish_reason == "length"

    @property
    def empty(self) -> bool:
        """True if the turn's last model call has neither text nor a tool call."""
        last = self.completions[-1] if self.completions else None
        return last is not None and not last.text.strip() and not last.tool_calls


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One turn: observation, decision, and reward (of env and parser together).

    observation: the text before the decision; the last one is `Rollout.final_observation`.
    terminated, truncated, info: as `env.step` returned them. info is {"parse_error": True} for a
        decision without an action. It has "termination_reason" if that ended the episode, and
        "truncation_reason" if the rollout was cut from outside.
    """

    observation: str
    decision: Decision
    reward: float
    terminated: bool = False
    truncated: bool = False
    info: Mapping[str, Any] = field(default_factory=dict)

    @property
    def illegal(self) -> bool:
        """True if the reply has no action, or one that the env does not allow."""
        info = self.info
        return bool(
            info.get("illegal") or info.get("parse_error") or info.get("outcome") == "illegal"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """An episode to play, and its sampling parameters.

    env_id, kwargs: arguments of `gymnasium.make`.
    seed, options: arguments of `env.reset`; without a seed every episode is new.
    group: rollouts with equal groups are compared by group-relative credit.
    max_turns: turns after which the episode is truncated.
    attempts: replies without an action, one after the other, after which the episode ends as a
        failure; None: 1 in a single-turn env, 3 in any other. Tool calls within a turn are no
        attempts.
    """

    env_id: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    options: Mapping[str, Any] | None = None
    group: str = ""
    sampling: Sampling = Sampling()
    max_turns: int = 32
    attempts: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One agent's record of one episode.

    agent: the env's name of the seat.
    player: the name of the player in that seat; "" in an episode without named players.

    >>> step = Step(observation="2 + 3 = ?", decision=Decision(action="5"), reward=1.0)
    >>> rollout = Rollout(task=Task(env_id="ludic/Arithmetic-v0", seed=1), steps=(step,))
    >>> rollout.total_reward, len(rollout.steps)
    (1.0, 1)
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
    error: class and message of the exception; None for an episode that has ended by itself. An
        episode with an error has no rollouts.
    blame: the cause of the error; None without one. An error of the environment or infrastructure
        says nothing about the policy.
    """

    index: int
    task: Task
    rollouts: tuple[Rollout, ...] = ()
    error: str | None = None
    blame: Blame | None = None


class Policy(Protocol):
    """A player: a model behind a chat client, a script, a human. Policies wrap policies."""

    def reset(self, system_prompt: str) -> None:
        """Start an episode; `system_prompt` is the env's suggestion, "" for none."""

    def observe(self, text: str) -> None:
        """Receive the next observation or feedback."""

    async def act(self, sampling: Sampling) -> Decision:
        """Decide on the observations so far."""


MakePolicy = Callable[[Env], Policy]
"""Makes the policy of an episode. It gets the env because reference policies read its state."""

ToolSchema = Mapping[str, Any]
"""Name, description and JSON schema of a function, in the format of chat APIs and templates.

{"type": "function", "function": {"name": ..., "description": ..., "parameters": ...}}
"""


class ChatClient(Protocol):
    """Completes dialogs, many at a time."""

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, tools: Sequence[ToolSchema] = ()
    ) -> Completion:
        """The next assistant message.

        A last message of the assistant is continued; the completion has only the new text. Raises
        ClientError if there is no usable response.
        """
