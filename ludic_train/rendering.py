"""From text to tokens, for what nobody recorded tokens of: demonstrations, dialogs.

What a model samples is never tokenised again. Text that was written by a script, a human, or a
model behind an API has no tokens, so they are made here, as the model would have met and said them:
a prompt is rendered by the chat template up to where the assistant speaks, and what it says is
encoded by itself, with the end of turn. That the template writes the same is checked each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from transformers import PreTrainedTokenizerBase

from ludic_gym.contexts import Context
from ludic_gym.types import Completion, Decision, Message, Rollout, Step, Task
from ludic_train.errors import UntrainableRollout
from ludic_train.model import render_chat


def with_token_ids(
    rollout: Rollout,
    tokenizer: PreTrainedTokenizerBase,
    context: Context,
    *,
    system_prompt: str = "",
    reply: str = "{}",
) -> Rollout:
    """The rollout as if a model had typed it: each step gets one completion with token ids.

    What was typed is the text of the step's one completion; or, of policies that call no model, the
    action, in `reply`, which says what the assistant writes for one, such as
    "<answer>{}</answer>". `context` and `system_prompt` make the prompts, as they will when the
    model plays. The completions have no log-probs and no version.
    Raises UntrainableRollout for a step of several model calls, whose dialog nobody recorded, and
    where the chat template does not write replies as they were typed.
    """
    context.reset(system_prompt)
    steps = []
    for step in rollout.steps:
        context.add({"role": "user", "content": step.observation})
        completion = said(tokenizer, context.messages(), _typed(step, reply, rollout))
        context.add({"role": "assistant", "content": completion.text})
        decision: Decision = replace(step.decision, completions=(completion,))
        steps.append(replace(step, decision=decision))
    return replace(rollout, steps=tuple(steps))


def dialog_rollout(messages: Sequence[Message], tokenizer: PreTrainedTokenizerBase) -> Rollout:
    """A dialog as a rollout in which every assistant message is a step, to be imitated.

    Raises UntrainableRollout for a dialog without one, or with tool calls, which templates write
    each in their own way; and as `with_token_ids` does.
    """
    steps = []
    for i, message in enumerate(messages):
        if message.get("tool_calls"):
            raise UntrainableRollout(f"message {i} of a dialog holds tool calls: {message}")
        if message["role"] == "assistant":
            call = said(tokenizer, messages[:i], message["content"] or "")
            decision = Decision(action=call.text, completions=(call,))
            seen = (messages[i - 1]["content"] if i else None) or ""
            steps.append(Step(observation=seen, decision=decision, reward=0.0))
    if not steps:
        roles = [message["role"] for message in messages]
        raise UntrainableRollout(f"a dialog of {roles} has no assistant message to imitate")
    return Rollout(task=Task(env_id="dialog"), steps=tuple(steps))


def said(tokenizer: PreTrainedTokenizerBase, dialog: Sequence[Message], text: str) -> Completion:
    """What an assistant says next in a dialog, with the tokens of the prompt and of its words.

    Raises UntrainableRollout where the chat template writes something else for it.
    """
    prompt = render_chat(tokenizer, dialog)
    completion = (*_encode(tokenizer, text), int(tokenizer.eos_token_id))
    written = render_chat(
        tokenizer, [*dialog, {"role": "assistant", "content": text}], reply_comes=False
    )
    _prove(tokenizer, [*prompt, *completion], written, text)
    return Completion(
        text=text, finish_reason="stop", prompt_ids=tuple(prompt), completion_ids=completion
    )


def _prove(
    tokenizer: PreTrainedTokenizerBase, made: Sequence[int], written: Sequence[int], text: str
) -> None:
    """Raises UntrainableRollout unless the template's text begins with that of the tokens made."""
    if written[: len(made)] == made:
        return
    # The same text may be cut into tokens in more than one way.
    ours, theirs = (str(tokenizer.decode(ids)) for ids in (made, written))
    if not theirs.startswith(ours):
        raise UntrainableRollout(
            f"the reply {text[:80]!r} would be trained as ...{ours[-60:]!r}, but the chat template "
            f"writes ...{theirs[-60:]!r}; use a template that keeps replies as they are and ends "
            "them with the eos token"
        )


def _typed(step: Step, reply: str, rollout: Rollout) -> str:
    calls = step.decision.completions
    if len(calls) > 1:
        raise UntrainableRollout(
            f"a step of {rollout.task.env_id} has {len(calls)} model calls, and what was said "
            "between them is not recorded; record rollouts with token ids"
        )
    return calls[0].text if calls else reply.replace("{}", step.decision.action or "")


def _encode(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
    return ids
