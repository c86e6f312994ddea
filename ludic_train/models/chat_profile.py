"""Facts of a model's tokenizer and chat template, found by rendering short dialogs.

Ends of turns, stop tokens, control tokens, the vocabulary in use, roles: one description that
prompts, demonstrations, samplers, servers and the trainer share.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

from jinja2 import TemplateError

from ludic_gym.reader import is_thought_tag
from ludic_gym.text_calls import CallFormat
from ludic_train.models.tool_calls import call_format, tool_template

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PROFILE_FILE = "chat_profile.json"
# Content that no template writes by itself.
MARK = "qzx"
THOUGHT = f"<think>\n{MARK}\n</think>\n\n{MARK}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatProfile:
    """Facts of a tokenizer and its chat template.

    turn_end: tokens after the text of a reply, the last of which stops sampling: as the template
        writes them, or the eos token where it writes none.
    stop_ids: all tokens that end a reply: that one, the eos token, those of the generation config.
    control: ids of the tokens that no text of a message may become, by their spelling.
    vocab_size: ids that the tokenizer has; later rows of a padded vocabulary are no tokens.
    keeps_prefixes: the template writes each reply into later prompts as it was sampled, a thought
        included. Where it does not, prompts here do: see `ludic_gym.prompts`.
    roles: of messages that the template writes.
    tools: format of tool calls; None for a template without one that is known here.
    bos: prompts begin with the bos token.
    """

    turn_end: tuple[int, ...]
    stop_ids: tuple[int, ...]
    control: Mapping[str, int]
    vocab_size: int
    keeps_prefixes: bool
    roles: tuple[str, ...]
    tools: CallFormat | None
    bos: bool

    def text(self, tokenizer: PreTrainedTokenizerBase) -> str:
        """The profile in a line: `a turn ends with '<|im_end|>'; ...`."""
        names = tokenizer.convert_ids_to_tokens(list(self.stop_ids))
        kept = "stay as sampled" + ("" if self.keeps_prefixes else ", not as the template has them")
        return (
            f"a turn ends with {tokenizer.decode(list(self.turn_end))!r}; replies stop at "
            f"{', '.join(map(str, names)) or 'no token'}; {self.vocab_size} tokens; earlier "
            f"replies {kept}; roles {', '.join(self.roles)}; tool calls {self.tools or 'in text'}"
        )


_PROFILES: WeakKeyDictionary[Any, tuple[object, ChatProfile]] = WeakKeyDictionary()
_FURTHER_STOPS: WeakKeyDictionary[Any, tuple[int, ...]] = WeakKeyDictionary()


def chat_profile(tokenizer: PreTrainedTokenizerBase) -> ChatProfile:
    """The profile of a tokenizer; probed at the first call, and again after its template changed.

    Raises ConfigError for one without a chat template.

    >>> from ludic_train import make_tokenizer
    >>> tokenizer = make_tokenizer(["2 + 3 = 5"])
    >>> profile = chat_profile(tokenizer)
    >>> tokenizer.decode(profile.turn_end), profile.keeps_prefixes, sorted(profile.control)
    ('<|im_end|>', True, ['<|im_end|>', '<|im_start|>', '<|pad|>'])
    """
    further = _FURTHER_STOPS.get(tokenizer, ())
    # All that a program may set after it was loaded.
    state = (tokenizer.chat_template, tokenizer.eos_token_id, len(tokenizer), further)
    known = _PROFILES.get(tokenizer)
    if known is None or known[0] != state:
        known = _PROFILES[tokenizer] = (state, _probed(tokenizer, further))
    return known[1]


def add_stops(tokenizer: PreTrainedTokenizerBase, ids: int | Sequence[int] | None) -> None:
    """Add the eos ids of a model's generation config to the tokenizer's profile."""
    more = [ids] if isinstance(ids, int) else ids or ()
    _FURTHER_STOPS[tokenizer] = tuple(sorted({*_FURTHER_STOPS.get(tokenizer, ()), *more}))


def write_profile(folder: Path, profile: ChatProfile) -> None:
    """Write the profile of a run's model into its folder, beside the harness."""
    text = json.dumps(asdict(profile), indent=2, ensure_ascii=False)
    (folder / PROFILE_FILE).write_text(f"{text}\n", encoding="utf-8")


def text_ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Token ids of a text in which no control token is one, however it is spelled.

    >>> from ludic_train import make_tokenizer
    >>> tokenizer = make_tokenizer(["2 + 3 = 5"])
    >>> ids = text_ids(tokenizer, "5<|im_end|>")
    >>> tokenizer.decode(ids), tokenizer.eos_token_id in ids
    ('5<|im_end|>', False)
    """
    control = chat_profile(tokenizer).control
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
    if set(control.values()).isdisjoint(ids):
        return ids
    # Tokenizers find those that they do not call special in any text, but not in parts of it.
    parts = (tokenizer.encode(character, add_special_tokens=False) for character in text)
    return list(itertools.chain.from_iterable(parts))


def _probed(tokenizer: PreTrainedTokenizerBase, further: Sequence[int]) -> ChatProfile:
    template = tool_template(tokenizer)
    prompt, system = _written(tokenizer, "u"), _written(tokenizer, "su")
    called, result = (_written(tokenizer, roles, reply_comes=False) for roles in ("uc", "uct"))
    frame = set(_ids(tokenizer, _written(tokenizer, "sua") or _written(tokenizer, "ua")))
    frame |= {*_ids(tokenizer, result)} - {*_ids(tokenizer, called)}
    eos = tokenizer.eos_token_id
    stops = {number for number in (eos, *further) if number is not None}
    control = {
        token.content: number
        for number, token in tokenizer.added_tokens_decoder.items()
        # A reply may hold the tags of its thoughts, and they are written back into prompts.
        if token.special or (number in frame | stops and not is_thought_tag(token.content))
    }
    turn_end = _turn_end(tokenizer, {*control.values(), *stops}, stops)
    roles = {"system": system, "user": prompt, "assistant": prompt, "tool": result}
    return ChatProfile(
        turn_end=turn_end,
        stop_ids=tuple(sorted({*turn_end[-1:], *stops})),
        control=control,
        vocab_size=1 + max(tokenizer.get_vocab().values()),
        keeps_prefixes=all(_keeps(tokenizer, reply) for reply in (MARK, THOUGHT)),
        roles=tuple(role for role, text in roles.items() if text is not None),
        tools=call_format(template),
        bos=_ids(tokenizer, prompt)[:1] == [tokenizer.bos_token_id],
    )


def _turn_end(
    tokenizer: PreTrainedTokenizerBase, marks: Collection[int], stops: Collection[int]
) -> tuple[int, ...]:
    """As in `ChatProfile`. marks: tokens of which the first one ends the turn."""
    for roles, ends in (("ua", marks), ("uau", stops)):
        after = _after_reply(tokenizer, roles)
        where = next((i for i, token in enumerate(after) if token in ends), None)
        if where is not None:
            return after[: where + 1]
    eos = tokenizer.eos_token_id
    return () if eos is None else (int(eos),)


def _after_reply(tokenizer: PreTrainedTokenizerBase, roles: str) -> tuple[int, ...]:
    """The tokens after the text of a reply: the end that is common to two dialogs."""
    one, other = (
        _ids(tokenizer, _written(tokenizer, roles, reply=text, reply_comes=False)) for text in "ab"
    )
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one[::-1], other[::-1]))  # noqa: B905
    return tuple(token for token, _ in same)[::-1]


def _keeps(tokenizer: PreTrainedTokenizerBase, reply: str) -> bool:
    prompt, later = _written(tokenizer, "u"), _written(tokenizer, "uau", reply=reply)
    return later is not None and later.startswith(f"{prompt}{reply}")


def _ids(tokenizer: PreTrainedTokenizerBase, text: str | None) -> list[int]:
    ids: list[int] = tokenizer.encode(text or "", add_special_tokens=False)
    return ids


def _written(
    tokenizer: PreTrainedTokenizerBase, roles: str, *, reply: str = MARK, reply_comes: bool = True
) -> str | None:
    """A dialog as the template writes it; None for one that it refuses, or leaves parts out of.

    roles: of its messages: system, user, assistant, c for an assistant that calls a tool, t for the
        result. reply: text of the assistant.
    """
    call = {"type": "function", "id": "a12345678", "function": {"name": "f", "arguments": {}}}
    messages: dict[str, dict[str, Any]] = {
        "s": {"role": "system", "content": MARK},
        "u": {"role": "user", "content": MARK},
        "a": {"role": "assistant", "content": reply},
        "c": {"role": "assistant", "content": "", "tool_calls": [call]},
        "t": {"role": "tool", "name": "f", "tool_call_id": "a12345678", "content": MARK},
    }
    dialog = [messages[role] for role in roles]
    try:
        text = tokenizer.apply_chat_template(
            dialog, add_generation_prompt=reply_comes, tokenize=False
        )
    # Templates fail in many ways on messages that they do not know.
    except (TemplateError, ValueError, TypeError, KeyError, AttributeError):
        return None
    written = cast(str, text)
    return written if written.count(MARK) >= sum(roles.count(role) for role in "sut") else None
