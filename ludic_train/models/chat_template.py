"""Chat templates: token ids of messages, and arguments set in the template itself.

The template of a tokenizer begins with the values of arguments such as Qwen's `enable_thinking`, so
that all who render by it, and those who read a saved model, get the same prompts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import msgspec
from jinja2 import Environment, TemplateError, TemplateSyntaxError, meta

from ludic_gym.contexts import Context
from ludic_gym.dialogs import change_for, sendable_arguments, sendable_dialog
from ludic_gym.errors import ConfigError
from ludic_gym.prompts import SHORT, ExactPrompts, reply_before, sampled_message, shortened
from ludic_gym.reader import divided, opens_thought, untagged
from ludic_gym.terminal import suggestion
from ludic_gym.trail import Trail
from ludic_gym.types import Completion, Decision, Message, Rollout, Step, Task, ToolSchema
from ludic_train.errors import UntrainableRollout
from ludic_train.models.chat_profile import chat_profile, text_ids
from ludic_train.models.tool_calls import with_calls

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Ends the values at the beginning of a template.
MARK = "{#- chat arguments -#}"
# Given by transformers, not by a user.
OWN = {"messages", "tools", "documents", "add_generation_prompt", "continue_final_message"}
OWN |= {"raise_exception", "strftime_now"}


def render_chat(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[Message],
    *,
    reply_comes: bool = True,
    tools: Sequence[ToolSchema] = (),
) -> list[int]:
    """Prompt ids for the next assistant message; the one way from a dialog to ids.

    A dialog that ends with an assistant message has that one continued. Without `reply_comes`, the
    ids end where the last message does. tools: for templates that write them into the prompt.
    Equals `tokenizer.apply_chat_template`, except that a control token spelled out inside a message
    or a tool ("<|im_end|>") stays ordinary text: no message can end a turn or open another.
    A dialog that the template refuses is rendered in another form, as servers get it too: with the
    system prompt in the first message of the user, for instance.
    Raises ConfigError for a dialog that the chat template refuses in any form.

    >>> from ludic_train import make_tokenizer
    >>> tokenizer = make_tokenizer(["2 + 3 = 5"])
    >>> ids = render_chat(tokenizer, [{"role": "user", "content": "2 + 3 = ?"}])
    >>> print(tokenizer.decode(ids), end="")
    <|im_start|>user
    2 + 3 = ?<|im_end|>
    <|im_start|>assistant
    """
    (safe, safe_tools), fence = _fence_specials(tokenizer, [list(messages), list(tools)])
    continued = reply_comes and bool(messages) and messages[-1]["role"] == "assistant"
    try:
        text: str = tokenizer.apply_chat_template(
            safe,
            tools=safe_tools or None,
            add_generation_prompt=reply_comes and not continued,
            continue_final_message=continued,
            tokenize=False,
        )
    except (TemplateError, ValueError) as error:
        change = change_for(str(error))
        changed = list(messages) if change is None else sendable_dialog(change(messages))
        if changed == list(messages):
            raise ConfigError(f"the chat template refuses this dialog: {error}") from error
        return render_chat(tokenizer, changed, reply_comes=reply_comes, tools=tools)
    ids: list[int] = []
    # Pieces between fences are special tokens of the template, so odd ones are text of messages.
    for i, piece in enumerate(text.split(fence) if fence else [text]):
        is_text = i % 2 == 1
        ids += (
            text_ids(tokenizer, piece)
            if is_text
            else tokenizer.encode(piece, add_special_tokens=False)
        )
    return ids


def with_parsed_arguments(message: Message) -> Message:
    """The message with arguments as objects, and text as its content, as templates expect them."""
    if not message.get("tool_calls"):
        return message
    calls: list[Any] = []
    for call in message["tool_calls"]:
        match call:
            case {"function": {"arguments": arguments, **function}, **rest}:
                # Templates that write each argument fail on a text.
                text = arguments if isinstance(arguments, str) else json.dumps(arguments)
                parsed = {**function, "arguments": json.loads(sendable_arguments(text))}
                calls.append({**rest, "function": parsed})
            case _:
                # The template says what it is missing.
                calls.append(call)
    # Some templates write "None" for what the chat API has in a message of calls.
    return cast(Message, {**message, "content": message["content"] or "", "tool_calls": calls})


class ChatRenderer:
    """`render_chat` with this tokenizer, for clients that make their prompts themselves.

        client = VLLMTokenClient(url, chat_renderer(tokenizer))

    Called with messages, `reply_comes` and tools, it returns token ids; the arguments of tool calls
    in messages are JSON text, as `Message` has them.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer, self._form = tokenizer, chat_profile(tokenizer).tools

    def __call__(
        self, messages: Sequence[Message], reply_comes: bool, tools: Sequence[ToolSchema] = ()
    ) -> list[int]:
        """Token ids of a dialog. Raises ConfigError for one that the template cannot write."""
        if tools and self._form is None:
            raise ConfigError(
                f"{len(tools)} tools were offered, and the model's chat template writes none, or "
                "has calls in a format that is not known: use ToolUse(protocol=TextTools())"
            )
        parsed = list(map(with_parsed_arguments, messages))
        return render_chat(self._tokenizer, parsed, reply_comes=reply_comes, tools=tools)

    @property
    def has_tools(self) -> bool:
        """True if the template has a format for tool calls that is known here."""
        return self._form is not None

    def read_calls(self, completion: Completion, tools: Sequence[ToolSchema]) -> Completion:
        """The completion with the tool calls in its text, in the format of the template."""
        if self._form is None:
            return completion
        return with_calls(completion, self._tokenizer, self._form, tools)


def chat_renderer(tokenizer: PreTrainedTokenizerBase) -> ChatRenderer:
    """Prompts of a model's chat template, and the tool calls in its replies."""
    return ChatRenderer(tokenizer)


def _fence_specials(
    tokenizer: PreTrainedTokenizerBase,
    data: Any,  # noqa: ANN401 - JSON
) -> tuple[Any, str]:
    """`data` with each special token's spelling between two fences, and the fence.

    The fence is a private-use character that `data` does not contain, "" if none was needed.
    """
    strings: list[str] = []
    _with_strings(data, strings.append)
    # Joined by a character that no special token holds, so that none is found across two strings.
    text = "\0".join(strings)
    specials = [token for token in chat_profile(tokenizer).control if token in text]
    if not specials:
        return data, ""
    fence = next(c for c in map(chr, range(0xF0000, 0xFFFFE)) if c not in text)
    # Where one token begins with another, the tokenizer finds the longer one.
    longest_first = sorted(specials, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, longest_first)))
    by = rf"{fence}\g<0>{fence}"
    fenced = _with_strings(data, lambda string: pattern.sub(by, string))
    return fenced, fence


def _with_strings(value: Any, change: Callable[[str], Any]) -> Any:  # noqa: ANN401 - JSON
    """JSON data with every string changed: values, and keys, as tools have them."""
    match value:
        case str():
            return change(value)
        case list():
            return [_with_strings(item, change) for item in value]
        case dict():
            return {change(key): _with_strings(item, change) for key, item in value.items()}
    return value


def with_token_ids(
    rollout: Rollout,
    tokenizer: PreTrainedTokenizerBase,
    context: Context,
    *,
    system_prompt: str = "",
    reply: str = "{}",
    known: dict[bytes, Completion] | None = None,
) -> Rollout:
    """The rollout as if a model had typed it: each step gets one completion with token ids.

    The typed text is that of the step's one completion; or, of policies that call no model, the
    action inside `reply`, such as "<answer>{}</answer>". `context` and `system_prompt` make the
    prompts, as they will when the model plays. The completions have no log-probs and no version.
    known: completions of calls with the same tokenizer, by dialog and text as JSON, to which those
        of this one are added: a position that many games come to is written once.
    Raises UntrainableRollout for a step of several model calls, whose dialog was not recorded, and
    where the chat template does not write replies as they were typed.

    >>> from ludic_gym import FullDialog
    >>> from ludic_train import make_tokenizer
    >>> step = Step(observation="2 + 3 = ?", decision=Decision(action="5"), reward=1.0)
    >>> played = Rollout(task=Task(env_id="ludic/Arithmetic-v0"), steps=(step,))
    >>> tokenizer = make_tokenizer(["2 + 3 = 5"])
    >>> typed = with_token_ids(played, tokenizer, FullDialog(), reply="<answer>{}</answer>")
    >>> tokenizer.decode(typed.steps[0].decision.completions[0].completion_ids)
    '<answer>5</answer><|im_end|>'
    """
    context.reset(system_prompt)
    steps, known, prompts = [], {} if known is None else known, _prompts(tokenizer)
    for step in rollout.steps:
        context.add({"role": "user", "content": step.observation})
        calls = step.decision.completions
        if len(calls) > 1:
            raise UntrainableRollout(
                f"a step of {rollout.task.env_id} has {len(calls)} model calls, and the messages "
                "between them are not recorded; record rollouts with token ids"
            )
        text = calls[0].text if calls else reply.replace("{}", step.decision.action or "")
        messages = context.messages()
        # Long dialogs do not come again.
        key = msgspec.json.encode([list(messages), text]) if len(messages) < SHORT else b""
        completion = known.get(key) or typed_completion(tokenizer, messages, text, prompts)
        known |= {key: completion} if key else {}
        written: Message = {"role": "assistant", "content": completion.text}
        context.add(sampled_message(written, messages, completion))
        decision: Decision = replace(step.decision, completions=(completion,))
        steps.append(replace(step, decision=decision))
    return replace(rollout, steps=tuple(steps))


def dialog_rollout(
    messages: Sequence[Mapping[str, Any]], tokenizer: PreTrainedTokenizerBase
) -> Rollout:
    """A dialog as a rollout in which every assistant message is a step, to be imitated.

    messages: with the keys of `Message`.
    Raises UntrainableRollout for a dialog without one, or with tool calls, which templates write
    each in their own way; and as `with_token_ids` does.

    >>> from ludic_train import make_tokenizer, trajectory_from
    >>> tokenizer = make_tokenizer(["2 + 3 = 5"])
    >>> dialog = [{"role": "user", "content": "2+3"}, {"role": "assistant", "content": "5"}]
    >>> (row,) = trajectory_from(dialog_rollout(dialog, tokenizer)).rows
    >>> [tokenizer.decode([token]) for token in row.input_ids[row.action_mask]]
    ['5', '<|im_end|>']
    """
    steps, dialog, prompts = [], Trail[Message]([]), _prompts(tokenizer)
    for i, message in enumerate(cast("Sequence[Message]", messages)):
        # Their spelling is the template's, and no text here says what the model would have typed.
        if message.get("tool_calls"):
            raise UntrainableRollout(f"message {i} of a dialog holds tool calls: {message}")
        if message["role"] == "assistant":
            call = typed_completion(tokenizer, dialog, message["content"] or "", prompts)
            decision = Decision(action=call.text, completions=(call,))
            seen = (dialog[i - 1]["content"] if i else None) or ""
            steps.append(Step(observation=seen, decision=decision, reward=0.0))
            message = sampled_message(message, dialog, call)
        dialog = dialog.then(message)
    if not steps:
        roles = [message["role"] for message in messages]
        raise UntrainableRollout(f"a dialog of {roles} has no assistant message to imitate")
    return Rollout(task=Task(env_id="dialog"), steps=tuple(steps))


def _prompts(tokenizer: PreTrainedTokenizerBase) -> ExactPrompts:
    return ExactPrompts(lambda messages, comes: render_chat(tokenizer, messages, reply_comes=comes))


def typed_completion(
    tokenizer: PreTrainedTokenizerBase,
    dialog: Sequence[Message],
    text: str,
    prompts: ExactPrompts | None = None,
) -> Completion:
    """The assistant's next message of a dialog, with the tokens of the prompt and of the message.

    dialog: messages before it. text: of the message, without the end of the turn.
    prompts: of the tokenizer, which continue the tokens of replies that have some.
    Its tokens are those that the chat template writes after the prompt, to the end of the turn: an
    empty thought before the text and other white space are the template's.
    Raises UntrainableRollout where the chat template writes something else for it.
    """
    prompt = (prompts or _prompts(tokenizer)).token_ids(dialog)
    shown = shortened(dialog, reply_before(dialog, len(dialog)))
    # Earlier replies are in the prompt as they were typed, whatever the template makes of them.
    is_as_written = chat_profile(tokenizer).keeps_prefixes and len(shown) == len(dialog)
    begun = list(prompt) if is_as_written else render_chat(tokenizer, shown)
    reply: Message = {"role": "assistant", "content": text}
    written = render_chat(tokenizer, [*shown, reply], reply_comes=False)
    ids = _reply_ids(tokenizer, begun, text, written)
    return Completion(text=text, finish_reason="stop", prompt_ids=prompt, completion_ids=ids)


def _reply_ids(
    tokenizer: PreTrainedTokenizerBase, prompt: list[int], text: str, written: list[int]
) -> list[int]:
    """The tokens of a reply and its end. written: the whole dialog, by the chat template."""
    end = list(chat_profile(tokenizer).turn_end)
    typed = text_ids(tokenizer, text)
    made = [*prompt, *typed, *end]
    if written[: len(made)] == made:
        return made[len(prompt) :]
    before, bare, ours, theirs = (
        str(tokenizer.decode(each))
        for each in (prompt, made[: len(made) - len(end)], made, written)
    )
    # The same text may be cut into tokens in more than one way, and some templates write the end
    # of a turn only where another one follows.
    if theirs.startswith(ours) or theirs.rstrip() == bare.rstrip():
        return made[len(prompt) :]
    content, ended, _ = theirs.rpartition(str(tokenizer.decode(end)))
    thought, answer = divided(text, opened=True)
    if opens_thought(before):
        # Sampled after the tag; templates leave a thought out of what they write.
        if ended and thought and answer and _squeezed(content).endswith(_squeezed(answer)):
            return made[len(prompt) :]
    elif ended and content.startswith(before):
        content = content.removeprefix(before)
        if _squeezed(_without_frame(content)) == _squeezed(_without_frame(text)):
            if written[: len(prompt)] != prompt:
                return [*text_ids(tokenizer, content), *end]
            reply = written[len(prompt) :]
            return reply[: len(reply) - reply[::-1].index(end[-1])]
    raise UntrainableRollout(
        f"the reply {text[:80]!r} would be trained as ...{ours[-60:]!r}, but the chat "
        f"template writes ...{theirs[-60:]!r}; use a template that keeps replies as they "
        "are and ends them with a token"
    )


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _without_frame(content: str) -> str:
    """The text of a reply without an empty thought before it."""
    thought, rest = divided(content)
    return content if untagged(thought) else rest


def set_chat_args(tokenizer: PreTrainedTokenizerBase, args: Mapping[str, Any]) -> None:
    """Have the tokenizer's chat template read these values, as arguments of its names.

        set_chat_args(tokenizer, {"enable_thinking": False})

    args: JSON values by name, which replace those that were set before.
    Raises ConfigError for a name that the template does not read, and for a value that is no JSON.
    """
    if not args:
        return
    template = tokenizer.chat_template
    if not isinstance(template, dict):
        tokenizer.chat_template = _with_args(template, args, tokenizer)
        return
    # Which one is rendered depends on the tools of a dialog.
    tokenizer.chat_template = {
        name: _with_args(each, args, tokenizer) if name in ("default", "tool_use") else each
        for name, each in template.items()
    }


def template_args(template: str, tokenizer: PreTrainedTokenizerBase) -> frozenset[str] | None:
    """Names of the arguments that a template reads; None for one that jinja2 cannot say it of."""
    env = Environment(extensions=["jinja2.ext.loopcontrols"], autoescape=True)
    # Of transformers alone, for masks of training.
    plain = re.sub(r"\{%-?\s*(end)?generation\s*-?%\}", "", template.rpartition(MARK)[2])
    try:
        read = meta.find_undeclared_variables(env.parse(plain))
    except TemplateSyntaxError:
        return None
    return frozenset(read - OWN - env.globals.keys() - tokenizer.special_tokens_map.keys())


def _with_args(template: str, args: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase) -> str:
    """The template with these values in place of those that it has. Raises ConfigError."""
    names = template_args(template, tokenizer)
    for name, value in args.items():
        if names is not None and name not in names:
            hint = suggestion(name, sorted(names), otherwise="it reads") if names else "it has none"
            raise ConfigError(f"the model's chat template reads no argument {name!r}; {hint}")
        if not name.isidentifier() or name in OWN:
            raise ConfigError(f"{name!r} is no name of an argument of a chat template")
        if value is None:
            raise ConfigError(f"the chat argument {name} is null: leave it out")
    values = "".join(f"{{%- set {name} = {_literal(v)} -%}}" for name, v in sorted(args.items()))
    return f"{values}{MARK}{template.rpartition(MARK)[2]}"


def _literal(value: Any) -> str:  # noqa: ANN401 - JSON
    """The value as an expression of jinja2. Raises ConfigError for one that is no JSON."""
    match value:
        case str():
            # Each character by its number: no text can end the string, or the statement.
            return '"' + "".join(f"\\U{ord(character):08x}" for character in value) + '"'
        case bool() | int() | float() | None:
            try:
                return "none" if value is None else json.dumps(value, allow_nan=False)
            except ValueError:
                pass
        case list() | tuple():
            return f"[{', '.join(map(_literal, value))}]"
        case {**items} if all(isinstance(key, str) for key in items):
            return "{" + ", ".join(f"{_literal(k)}: {_literal(v)}" for k, v in items.items()) + "}"
    raise ConfigError(f"an argument of a chat template is {value!r}, and can be JSON alone")
