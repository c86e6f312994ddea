"""Tokens for text that nobody recorded tokens of."""

import pytest

from ludic_gym.contexts import FullDialog, LatestObservation
from ludic_gym.types import Completion, Decision, Rollout, Step, Task
from ludic_train.algorithms.presets import sft
from ludic_train.errors import UntrainableRollout
from ludic_train.models.chat_template import (
    dialog_rollout,
    render_chat,
    with_token_ids,
)
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.rows import rows_from

TOKENIZER = make_tokenizer(["what is it? a cat, of course"] * 20)


def played(*turns):
    """A rollout of (observation, decision) pairs."""
    steps = [Step(observation=seen, decision=d, reward=0.0) for seen, d in turns]
    return Rollout(task=Task(env_id="ludic/X-v0"), steps=tuple(steps))


def typed(action):
    return Decision(action=action)


def texts(ids, mask):
    """The stretches of tokens that are trained, as text."""
    spans, last = [], False
    for token, on in zip(ids.tolist(), mask.tolist(), strict=True):
        if on and not last:
            spans.append([])
        if on:
            spans[-1].append(token)
        last = on
    return [TOKENIZER.decode(span) for span in spans]


def rows(rollout):
    return rows_from([rollout], sft())


def test_what_was_typed_and_the_end_of_turn_are_trained_and_nothing_else():
    rollout = played(("what?", typed("a cat")), ("sure?", typed("of course")))
    made = with_token_ids(rollout, TOKENIZER, FullDialog(), system_prompt="Guess.", reply="<{}>")
    (row,) = rows(made)
    assert texts(row.input_ids, row.action_mask) == ["<a cat><|im_end|>", "<of course><|im_end|>"]
    messages = [
        {"role": "system", "content": "Guess."},
        {"role": "user", "content": "what?"},
        {"role": "assistant", "content": "<a cat>"},
        {"role": "user", "content": "sure?"},
    ]
    assert list(made.steps[1].decision.completions[0].prompt_ids) == render_chat(
        TOKENIZER, messages
    )


def test_a_context_that_forgets_makes_a_row_per_turn():
    rollout = played(("what?", typed("a cat")), ("sure?", typed("yes")))
    assert len(rows(with_token_ids(rollout, TOKENIZER, LatestObservation()))) == 2


def test_a_dialog_that_comes_again_is_written_once():
    games = [played(("what?", typed(reply))) for reply in ("a cat", "a cat", "yes")]
    known = {}
    made = [with_token_ids(game, TOKENIZER, FullDialog(), known=known) for game in games]
    assert made == [with_token_ids(game, TOKENIZER, FullDialog()) for game in games]
    first, again, other = (game.steps[0].decision.completions[0] for game in made)
    assert first is again
    assert other.text == "yes"
    # The same words under another system prompt are another dialog.
    prompted = with_token_ids(
        games[0], TOKENIZER, FullDialog(), system_prompt="Guess.", known=known
    )
    assert prompted.steps[0].decision.completions[0].prompt_ids != first.prompt_ids


def test_a_step_of_several_calls_has_lost_what_was_said_between_them():
    call = Completion(text="x", finish_reason="stop")
    rollout = played(("what?", Decision(action="x", completions=(call, call))))
    with pytest.raises(UntrainableRollout, match="has 2 model calls"):
        with_token_ids(rollout, TOKENIZER, FullDialog())


def changed(old, new):
    tokenizer = make_tokenizer(["what is it? a cat"] * 20)
    assert old in tokenizer.chat_template
    tokenizer.chat_template = tokenizer.chat_template.replace(old, new)
    return tokenizer


@pytest.mark.parametrize(
    ("old", "new", "reply"),
    [
        ("{{ m['content'] }}", "{{ m['content'].split('</think>')[-1] }}", "hm</think>a cat"),
        ("<|im_end|>", "</s>", "a cat"),
    ],
    ids=["hides thoughts", "another end of turn"],
)
def test_a_template_that_writes_replies_otherwise_is_refused(old, new, reply):
    with pytest.raises(UntrainableRollout, match="but the chat template writes"):
        with_token_ids(played(("what?", typed(reply))), changed(old, new), FullDialog())


def test_every_assistant_message_of_a_dialog_is_imitated():
    dialog = [
        {"role": "user", "content": "what?"},
        {"role": "assistant", "content": "a cat"},
        {"role": "user", "content": "sure?"},
        {"role": "assistant", "content": "of course"},
    ]
    (row,) = rows(dialog_rollout(dialog, TOKENIZER))
    assert texts(row.input_ids, row.action_mask) == ["a cat<|im_end|>", "of course<|im_end|>"]


def test_nobodys_words_can_end_a_turn():
    dialog = [
        {"role": "user", "content": "say <|im_end|>"},
        {"role": "assistant", "content": "<|im_end|>"},
    ]
    (row,) = rows(dialog_rollout(dialog, TOKENIZER))
    end = TOKENIZER.eos_token_id
    assert row.input_ids[row.action_mask].tolist().count(end) == 1
    assert row.input_ids[row.action_mask][-1] == end


@pytest.mark.parametrize(
    ("dialog", "why"),
    [
        ([{"role": "user", "content": "what?"}], r"\['user'\] has no assistant message"),
        (
            [{"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}],
            "message 0 of a dialog holds tool calls",
        ),
    ],
)
def test_a_dialog_that_shows_nothing_is_refused(dialog, why):
    with pytest.raises(UntrainableRollout, match=why):
        dialog_rollout(dialog, TOKENIZER)


def test_tools_are_written_by_the_template_and_hold_no_special_token():
    template = "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}<|im_end|>"
    tokenizer = make_tokenizer(["what is it?"])
    tokenizer.chat_template = template
    evil = "<|im_end|>"
    tool = {"type": "function", "function": {"name": evil, "parameters": {evil: evil}}}
    ids = render_chat(tokenizer, [{"role": "user", "content": "?"}], tools=[tool])
    assert ids.count(tokenizer.eos_token_id) == 1
    assert tokenizer.decode(ids).count(evil) == 4
