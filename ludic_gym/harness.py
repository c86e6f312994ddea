"""Harness: how a model plays. One object for evaluations, training, commands and saved models.

harness = Harness(context="latest", parser="think+xml:move", tools=(search,))
policy = harness.policy(client, env)
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from ludic_gym.contexts import Context, FullDialog, LatestObservation, TruncatedThinkingContext
from ludic_gym.errors import ConfigError
from ludic_gym.offered import action_schemas, env_tools, legal_actions
from ludic_gym.packages import import_user_module
from ludic_gym.parsers import Parser, ParseResult, named_parser
from ludic_gym.policies.chat import CLOSING, ChatPolicy, ThinkingBudget
from ludic_gym.policies.wrappers import CutShort, Parsed, RejectCutOff, has_native_tools
from ludic_gym.types import ChatClient, Env, MakePolicy, Policy

HARNESS_FILE = "harness.json"
IN_PYTHON = "in-python"
"""Stands in files for a part that was given as an object."""
CONTEXTS: Mapping[str, Callable[[], Context]] = {
    "full": FullDialog,
    "latest": LatestObservation,
    "truncated-thinking": TruncatedThinkingContext,
}
CUT_OFF = ("reject", "keep", "drop", "mask")
STRICT = "strict"
ROUNDS = 8
# Parts that hold for a policy however it was made.
_OUTSIDE = ("factory", "attempts", "reply_tokens")
_LEAST = {"rounds": 2, "attempts": 1, "think_tokens": 0, "reply_tokens": 1}

# Commands and files give these parts as text, and Python as text or objects.
if TYPE_CHECKING:
    from ludic_gym.tools.tool import Tool

    ContextPart = str | Callable[[], Context] | None
    ParserPart = str | Parser | None
    ToolsPart = str | Sequence[Tool | Callable[..., object]] | None
    FactoryPart = str | Callable[..., Policy] | None
else:
    ContextPart = ParserPart = ToolsPart = FactoryPart = str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Harness:
    r"""The way in which a model plays. A part that is None is the model's own, or the default.

    The parts may be given as text, as commands and files do, or as objects: a `Parser`, a function
    that makes a `Context`, a sequence of tools, a factory of policies.

    >>> from ludic_gym import ScriptedClient
    >>> harness = Harness(parser="xml:answer")
    >>> policy = harness.policy(ScriptedClient(["<answer>5</answer>"]))
    >>> policy("2 + 3 = ?")
    '5'
    """

    system_prompt: str | None = None
    """System prompt, in place of the environment's; an empty text is none."""
    instructions: str | None = None
    """Paragraph after the system prompt, such as the form of a reply."""
    context: ContextPart = None
    """Messages of a prompt: the dialog so far (full), the newest observation alone (latest), the
    dialog without earlier thoughts (truncated-thinking), or module:function. Without it, full."""
    parser: ParserPart = None
    """Part of a reply that is the action: think, xml:TAG, boxed, json, json:FIELD, last-number, or
    several with + between them; or strict: the whole reply, exactly as the environment names it.
    Without it, the environment's own reader."""
    form: str | None = None
    """Form of a reply that the parser reads, with {} for the action, for demonstrations."""
    tools: ToolsPart = None
    """Functions to call beside those of the environment, as module:name."""
    tool_format: Literal["native", "text"] | None = None
    """Calls of tools by the model's own format or server (native), or in the text of replies.
    Without it, native where the model has one."""
    rounds: int | None = None
    """Model calls in a turn with tools, the last without; 8 without it."""
    attempts: int | None = None
    """Replies without an action, one after the other, after which an episode has failed. Without
    it, one where an episode is one question, and three elsewhere."""
    cut_off: Literal["reject", "keep", "drop", "mask"] | None = None
    """Replies that reach the limit of tokens: have no action (reject, the default), are read
    (keep), or are rejected and their episodes not learned from, before rewards are compared (drop)
    or after, so that they count in the baselines of their groups (mask)."""
    think_tokens: int | None = None
    """Tokens after which a thought is ended, so that an answer follows it; 0 lets thoughts go on.
    Without it, 6/7 of `max_tokens` for the algorithm scalerl, and no limit for others."""
    think_closing: str | None = None
    """Text that ends a thought, by default "</think>" on a line of its own. A reply with its last
    word already is left alone."""
    format_bonus: float | None = None
    """Reward for the first reply of an episode that the parser reads, below that of a success (1);
    0 without it."""
    reply_tokens: int | None = None
    """Longest reply, in tokens, whatever a request says."""
    factory: FactoryPart = None
    """Function that makes the policy in place of all of this, as module:function: of the client and
    the environment, or of the environment alone."""

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise ConfigError(f"{name} must be at least {least}, got {value}")
        if isinstance(self.context, str) and ":" not in self.context:
            _check_choice("context", self.context, (*CONTEXTS, IN_PYTHON))
        if isinstance(self.parser, str) and self.parser not in ("", STRICT, IN_PYTHON):
            named_parser(self.parser)
        _check_choice("tool_format", self.tool_format or "text", ("native", "text"))
        _check_choice("cut_off", self.cut_off or "reject", CUT_OFF)
        if self.think_closing is not None and not self.think_closing.strip():
            raise ConfigError(f"think_closing={self.think_closing!r} has no word")
        if not 0 <= (self.format_bonus or 0) < 1:
            raise ConfigError(
                f"format_bonus={self.format_bonus}: a success pays 1, and form may not pay as much"
            )
        others = [
            n for n, value in self._parts().items() if value is not None and n not in _OUTSIDE
        ]
        if self.factory is not None and others:
            raise ConfigError(
                f"factory={self.factory!r} makes the whole policy: leave out {', '.join(others)}"
            )

    def over(self, other: Harness | None) -> Harness:
        """This harness, with the parts of the other one where it has none itself."""
        if other is None or self.factory is not None:
            return self
        parts = {n: value for n, value in self._parts().items() if value is not None}
        return replace(other, factory=None, **parts) if parts else other

    def policy(self, client: ChatClient, env: Env | None = None) -> Policy:
        """The policy of one episode.

        env: offers its tools; None for a policy without an environment.
        Raises ConfigError for a part that was given in Python to the run that saved the harness.
        """
        # A policy does not choose the sampling, so the limit has to sit in the client.
        limited = client if self.reply_tokens is None else CutShort(client, self.reply_tokens)
        if self.factory is not None:
            return _made_by(_resolved("factory", self.factory), limited, env)
        chat = ChatPolicy(limited, self.new_context(), self.system_prompt)
        chat.instructions += (self.instructions,) if self.instructions else ()
        policy: Policy = chat
        if self.think_tokens:
            policy = ThinkingBudget(chat, self.think_tokens, self.think_closing or CLOSING)
        if self.cut_off != "keep":
            policy = RejectCutOff(policy)
        policy = self._with_tools(policy, client, env)
        parser = exact_action(env) if self.parser == STRICT else self.parse
        return policy if parser is None else Parsed(policy, parser, bonus=self.format_bonus or 0.0)

    def _with_tools(self, policy: Policy, client: ChatClient, env: Env | None) -> Policy:
        """The policy with the tools of the environment and of this harness."""
        native = self.tool_format == "native" or (
            self.tool_format is None and has_native_tools(client)
        )
        tools, actions = (*env_tools(env), *self._own_tools()), partial(action_schemas, env)
        if not tools and not (native and actions()):
            return policy
        # Imported here: most policies have no tools.
        from ludic_gym.policies.tool_use import ActionCalls, NativeTools, TextTools, ToolUse

        if tools:
            policy = ToolUse(
                policy,
                tools,
                protocol=NativeTools() if native else TextTools(),
                max_steps=self.rounds or ROUNDS,
                actions=actions,
            )
        return ActionCalls(policy, actions) if native and actions() else policy

    def make_policy(self, client: ChatClient) -> MakePolicy:
        """The function that makes a policy of the client for each environment.

        Raises ConfigError as `policy` does, before the first episode.
        """
        for part in ("context", "parser", "tools", "factory"):
            if getattr(self, part) == IN_PYTHON:
                _resolved(part, IN_PYTHON)
        return lambda env: self.policy(client, env)

    @property
    def reply_form(self) -> str:
        """Form of a reply, with {} for the action."""
        if self.form is not None:
            return self.form
        named = self.parser.split("+") if isinstance(self.parser, str) else [""]
        kind, _, tag = named[-1].partition(":")
        return {"xml": f"<{tag}>{{}}</{tag}>", "boxed": r"\boxed{{}}"}.get(kind, "{}")

    def whole_prompt(self, suggested: str) -> str:
        """The system prompt of an episode. suggested: that of the environment."""
        prompt = suggested if self.system_prompt is None else self.system_prompt
        return "\n\n".join(filter(None, (prompt, self.instructions)))

    def new_context(self) -> Context:
        """An empty context."""
        if isinstance(self.context, str) and self.context in CONTEXTS:
            return CONTEXTS[self.context]()
        if self.context is None:
            return FullDialog()
        return cast(Context, _resolved("context", self.context)())

    @property
    def parse(self) -> Parser | None:
        """The parser; None for the environment's reader."""
        if not self.parser or self.parser == STRICT or callable(self.parser):
            return self.parser if callable(self.parser) else None
        if self.parser == IN_PYTHON:
            return cast(Parser, _resolved("parser", self.parser))
        return named_parser(self.parser)

    def as_data(self) -> dict[str, Any]:
        """The parts that are not None, as JSON and TOML hold them; objects are IN_PYTHON."""
        parts = {n: value for n, value in self._parts().items() if value is not None}
        return {n: v if isinstance(v, str | int | float) else IN_PYTHON for n, v in parts.items()}

    def _own_tools(self) -> Sequence[Tool | Callable[..., object]]:
        if self.tools is None or not isinstance(self.tools, str):
            return tuple(self.tools or ())
        named = [_resolved("tools", name.strip()) for name in self.tools.split(",")]
        return [tool for one in named for tool in (one if isinstance(one, Sequence) else [one])]

    def _parts(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def of(cls, harness: Harness | str | Callable[..., Policy] | None) -> Self:
        """The harness itself, the one of a name in `HARNESSES`, of a run's folder or "module:name".

        Parts may follow a name, or stand alone: "think-tag,context=latest,rounds=4". A function is
        the `factory` of one. Raises ConfigError for an unknown name.

        >>> Harness.of("boxed,attempts=2").attempts
        2
        """
        if harness is None:
            return cls()
        if isinstance(harness, Harness):
            return cast(Self, harness)
        if not isinstance(harness, str):
            return cls(factory=harness)
        if (Path(harness) / HARNESS_FILE).is_file():
            return cast(Self, read_harness(harness))
        if "=" in harness:
            return cast(Self, _with_parts(*harness.split(",")))
        if harness in HARNESSES:
            return cast(Self, HARNESSES[harness])
        if ":" not in harness:
            raise ConfigError(
                f"no harness {harness!r}; there are {', '.join(HARNESSES)}, a run's folder, and "
                "module:name for a Harness or a function of your own"
            )
        resolved = _resolved("harness", harness)
        return cast(Self, resolved) if isinstance(resolved, Harness) else cls(factory=harness)


def write_harness(folder: str | Path, harness: Harness) -> None:
    """Write a run's harness.json.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_harness(folder, Harness(context="latest", parser="xml:answer"))
    ...     read_harness(folder).parser
    'xml:answer'
    """
    text = json.dumps(harness.as_data(), indent=2) + "\n"
    (Path(folder) / HARNESS_FILE).write_text(text, encoding="utf-8")


def read_harness(folder: str | Path) -> Harness:
    """The harness that `write_harness` wrote. Raises ConfigError for any other file."""
    path, names = Path(folder) / HARNESS_FILE, [each.name for each in fields(Harness)]
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path} is no JSON: {error}") from error
    # An unknown part may change the prompts, so it is refused and not ignored.
    if not isinstance(values, dict) or not values.keys() <= set(names):
        raise ConfigError(f"{path} must be an object with {', '.join(names)}, got {values!r}")
    return Harness(**values)


def _with_parts(first: str, *others: str) -> Harness:
    """The harness of a name with other parts, each as part=value."""
    named = "=" not in first
    base = Harness.of(first) if named else Harness()
    kinds = {each.name: each.type for each in fields(Harness)}
    parts: dict[str, Any] = {}
    for text in others if named else (first, *others):
        name, _, value = text.partition("=")
        if name not in kinds:
            raise ConfigError(f"a harness has no part {name!r}; it has {', '.join(kinds)}")
        number = float if "float" in kinds[name] else int if "int" in kinds[name] else str
        try:
            parts[name] = number(value)
        except ValueError as error:
            raise ConfigError(f"{name}={value!r} in a harness should be a number") from error
    return replace(base, **parts)


def _check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ConfigError(f"{name}={value!r} must be one of {', '.join(choices)}")


def _resolved(part: str, value: Any) -> Any:  # noqa: ANN401 - any object of the user
    """The object itself, or the one that "module:name" names."""
    if value == IN_PYTHON:
        raise ConfigError(
            f"the {part} of this model's harness was an object in Python, which no file holds: "
            f"give it again, as harness=lg.Harness({part}=...), or name it as module:name"
        )
    if not isinstance(value, str):
        return value
    module, colon, name = value.rpartition(":")
    member = getattr(import_user_module(module, value), name, None) if colon else None
    if member is None:
        raise ConfigError(f"{part}={value!r}: write module:name, with a name of that module")
    return member


def _made_by(factory: Callable[..., Policy], client: ChatClient, env: Env | None) -> Policy:
    """The policy of a factory of (client, env), or of (env)."""
    return factory(env) if len(inspect.signature(factory).parameters) == 1 else factory(client, env)


def exact_action(env: Env | None) -> Parser:
    """A parser of replies that are a legal action and nothing else, letter by letter.

    Without legal actions that are known, every reply is one.
    """

    def parse(text: str) -> ParseResult:
        legal = legal_actions(env)
        if not legal or text.strip() in legal:
            return ParseResult(text.strip() or None)
        return ParseResult(None, feedback="Reply with a legal action and nothing else.")

    return parse


HARNESSES: Mapping[str, Harness] = {
    "plain": Harness(),
    "think-tag": Harness(
        instructions="Think first, between <think> and </think>. Then give your reply, and nothing "
        "else, between <answer> and </answer>.",
        parser="think+xml:answer",
        form="<think></think><answer>{}</answer>",
    ),
    "boxed": Harness(
        instructions="Think step by step, and give your final reply in \\boxed{}.",
        parser="boxed",
        form="\\boxed{{}}",
    ),
    "react": Harness(
        instructions="Reason about what to do, and call a tool where it helps; you then get its "
        "result. When you know your reply, give it between <answer> and </answer>.",
        parser="xml:answer",
        form="<answer>{}</answer>",
        tool_format="text",
    ),
    "truncated-thinking": Harness(
        instructions="Think first, between <think> and </think>, and then reply.",
        context="truncated-thinking",
        parser="think",
        form="<think></think>{}",
    ),
}
"""Harnesses by name: as it stands, and as papers prompt."""
