import asyncio
import itertools
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludic_gym.contexts import FullDialog, SlidingWindow, TruncatedThinkingContext
from ludic_gym.envs.core.base import TextEnv, proceed
from ludic_gym.policies.chat import ChatPolicy, ThinkingBudget
from ludic_gym.policies.wrappers import RejectCutOff
from ludic_gym.prompts import ExactPrompts, sampled_message
from ludic_gym.rollout.episode import run_episode
from ludic_gym.trail import Trail
from ludic_gym.types import Completion, Sampling, Task

END, NEWLINE, MERGED = 256, 10, 1000
ROLES = {"system": 257, "user": 258, "assistant": 259, "tool": 260}


def render(messages, reply_comes):
    """A chat template over characters, in which "ab" is one token."""
    ids = []
    for message in messages:
        text = [ord(c) for c in message["content"].replace("ab", "\u03e8")]
        ids += [ROLES[message["role"]], *text, END, NEWLINE]
    goes_on = reply_comes and messages[-1]["role"] == "assistant"
    return ids[:-2] if goes_on else ids + [ROLES["assistant"]] * reply_comes


def strict_render(messages, reply_comes):
    """As `render`, but earlier turns lose what is before "!"."""
    last = max((i for i, m in enumerate(messages) if m["role"] == "user"), default=0)
    shown = [
        {**m, "content": m["content"].rpartition("!")[2]} if i < last else m
        for i, m in enumerate(messages)
    ]
    return render(shown, reply_comes)


class TokenClient:
    """Replies with given token ids, to prompts that ExactPrompts makes."""

    def __init__(self, *replies, render=render):
        self.prompts = ExactPrompts(render)
        self.replies = list(replies)
        self.calls = []

    async def complete(self, messages, sampling, tools=()):
        ids = self.replies.pop(0)
        completion = Completion(
            text="".join(map(chr, (i for i in ids if i < 256))),
            finish_reason="stop" if ids[-1] == END else "length",
            prompt_ids=self.prompts.token_ids(messages),
            completion_ids=ids,
        )
        self.calls.append(completion)
        return completion


A, B = ord("a"), ord("b")


async def play(client, observations, context=None, wrap=lambda policy: policy):
    policy = wrap(ChatPolicy(client, context or FullDialog()))
    policy.reset("")
    for observation in observations:
        policy.observe(observation)
        await policy.act(Sampling(max_tokens=10))
    return client


async def test_a_prompt_continues_the_ids_that_were_sampled_not_those_of_their_text():
    # "ab" was sampled as two tokens; the template would write it as one.
    client = await play(TokenClient((A, B, END), (A, END)), ["x", "y"])

    first, second = client.calls
    assert second.prompt_ids == (
        *first.prompt_ids,
        *(A, B, END),
        *(NEWLINE, ROLES["user"], ord("y"), END, NEWLINE, ROLES["assistant"]),
    )
    assert MERGED not in second.prompt_ids
    assert (client.prompts.extended, client.prompts.rewritten) == (1, 0)


def extends(after, before):
    """True if the prompt begins with the tokens of the previous prompt and completion."""
    so_far = before.prompt_ids + before.completion_ids
    return len(after.prompt_ids) > len(so_far) and after.prompt_ids[: len(so_far)] == so_far


async def test_the_template_ends_a_turn_that_was_cut_off():
    client = await play(TokenClient((A, B), (A, END)), ["x", "y"])

    first, second = client.calls
    tail = second.prompt_ids[len(first.prompt_ids) :]
    assert tail[:5] == (A, B, END, NEWLINE, ROLES["user"])


async def test_many_turns_stay_exact():
    client = await play(TokenClient(*[(A, B, END)] * 5), "vwxyz")

    assert all(extends(after, before) for before, after in itertools.pairwise(client.calls))
    assert client.prompts.extended == 4


async def test_what_was_sampled_stays_where_the_template_would_rewrite_it():
    client = await play(
        TokenClient((A, ord("!"), B, END), (A, END), render=strict_render), ["x", "y"]
    )

    first, second = client.calls
    assert second.prompt_ids == (
        *first.prompt_ids,
        *(A, ord("!"), B, END),
        *(NEWLINE, ROLES["user"], ord("y"), END, NEWLINE, ROLES["assistant"]),
    )
    assert (client.prompts.extended, client.prompts.rewritten) == (1, 0)


@pytest.mark.parametrize(
    "context", [SlidingWindow(3, len), TruncatedThinkingContext()], ids=["window", "thinking"]
)
async def test_a_context_that_shows_less_starts_a_new_row(context):
    thought = tuple(map(ord, "<think>a</think>b"))
    client = await play(TokenClient((*thought, END), (A, END)), ["xx", "yy"], context)

    assert not extends(client.calls[1], client.calls[0])


async def test_a_window_that_lost_the_first_turn_is_counted():
    client = TokenClient((A, END), (B, END), (A, END))
    await play(client, ["xx", "y", "z"], SlidingWindow(4, len))

    # The third prompt shows the second turn without the first.
    assert client.prompts.rewritten == 1


async def test_the_forced_end_of_a_thought_is_continued_exactly():
    client = TokenClient((A, B), (A, END), (B, END))
    await play(
        client,
        ["x", "y"],
        wrap=lambda policy: ThinkingBudget(policy, 2, closing="|"),
    )

    first, second, third = client.calls
    assert second.prompt_ids == (*first.prompt_ids, A, B, ord("|"))
    assert extends(third, second)
    assert (client.prompts.extended, client.prompts.rewritten) == (2, 0)


async def test_an_answer_goes_on_after_its_thought_without_a_token_between():
    thought = tuple(map(ord, "</think>"))
    client = TokenClient(thought, (A, END))
    await play(client, ["x"], wrap=lambda policy: ThinkingBudget(policy, 8))

    first, second = client.calls
    assert second.prompt_ids == first.prompt_ids + first.completion_ids


async def test_copies_of_a_dialog_continue_it_exactly():
    client = TokenClient((A, B, END), (A, END))
    policy = ChatPolicy(client)
    policy.observe("x")
    await policy.act(Sampling())
    fork = deepcopy(policy)
    fork.observe("y")
    await fork.act(Sampling())

    assert extends(client.calls[1], client.calls[0])


def test_a_dialog_that_was_not_sampled_is_rendered():
    prompts = ExactPrompts(render)
    dialog = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "ab"},
        {"role": "user", "content": "y"},
    ]

    assert prompts.token_ids(dialog) == tuple(render(dialog, True))
    assert (prompts.extended, prompts.rewritten) == (0, 0)


def test_a_sampled_message_is_like_any_other():
    plain = {"role": "assistant", "content": "a"}
    message = sampled_message(plain, [], Completion(text="a", finish_reason="stop"))

    assert message == plain
    assert repr(message) == repr(plain)


class Counted:
    """A template that counts the messages that it gets."""

    def __init__(self, render=render):
        self.render, self.messages = render, 0

    def __call__(self, messages, reply_comes):
        self.messages += len(messages)
        return self.render(messages, reply_comes)


async def test_what_is_rendered_grows_with_the_dialog_and_not_with_its_square():
    counts = []
    for turns in (64, 256):
        template = Counted()
        await play(TokenClient(*[(A, END)] * turns, render=template), ["x"] * turns)
        counts.append(template.messages)

    assert counts[1] < 4.2 * counts[0]


@pytest.mark.parametrize("template", [render, strict_render])
@given(
    st.lists(st.tuples(st.text("ab!", max_size=3), st.text("ab!", max_size=3)), max_size=40),
    st.text("ab!", max_size=200),
)
def test_prompts_are_those_of_whole_dialogs(template, turns, system):
    """Thoughts before "!" come and go; a template may remove them from earlier turns."""
    made = []
    for whole in (False, True):
        replies = [(*map(ord, reply), END) for reply, _ in turns]
        client = TokenClient(*replies, render=template)
        client.prompts.renders_whole = whole
        policy = ChatPolicy(client, system_prompt=system)
        policy.reset("")
        for _, observation in turns:
            policy.observe(observation)
            asyncio.run(policy.act(Sampling(max_tokens=10)))
        policy.end()
        made.append([call.prompt_ids for call in client.calls])

    assert made[0] == made[1]


def with_results(texts):
    """A dialog of one question and replies that call tools, each with its prompt and tokens."""
    prompts, dialog = ExactPrompts(strict_render), Trail([{"role": "user", "content": "x"}])
    for text in texts:
        completion = Completion(
            text=text,
            finish_reason="stop",
            prompt_ids=prompts.token_ids(dialog),
            completion_ids=(*map(ord, text), END),
        )
        reply = sampled_message({"role": "assistant", "content": text}, dialog, completion)
        dialog = dialog.then(reply, {"role": "tool", "content": "4"})
    return prompts, dialog


def test_a_new_turn_keeps_all_of_the_turn_before():
    # Of the replies of the turn, one in the middle has a thought, which the template would remove.
    prompts, dialog = with_results(["a!b" if i == 5 else "a" for i in range(9)])
    assert prompts.rewritten == 0
    asked = dialog.then({"role": "user", "content": "y"})

    reply, result, question = asked[-3:]
    ids = (NEWLINE, *render([result, question], True))
    assert prompts.token_ids(asked) == (*reply.token_ids, *ids)
    assert prompts.rewritten == 0


def numbered(messages, reply_comes):
    """Each message is preceded by its number."""
    return [n for i, m in enumerate(messages) for n in (i, *render([m], False))] + [
        ROLES["assistant"]
    ] * reply_comes


async def test_a_template_that_numbers_turns_gets_whole_dialogs():
    client = TokenClient(*[(A, END)] * 20, render=numbered)
    with pytest.warns(UserWarning, match="whole dialogs are rendered from now on"):
        await play(client, ["x"] * 20)

    assert client.prompts.renders_whole
    whole = TokenClient(*[(A, END)] * 20, render=numbered)
    whole.prompts.renders_whole = True
    await play(whole, ["x"] * 20)
    assert client.calls == whole.calls


def late(messages, reply_comes):
    """As `render`, but a message after the fiftieth begins with its number."""
    return [n for i, m in enumerate(messages) for n in ([i] * (i > 50) + render([m], False))] + [
        ROLES["assistant"]
    ] * reply_comes


class Endless(TextEnv):
    def start(self, options):
        return "x", ""

    def turn(self, action):
        return proceed("x")


async def test_the_end_of_an_episode_holds_its_last_prompt_against_the_whole_dialog():
    policy = ChatPolicy(TokenClient(*[(A, END)] * 30, render=late))
    with pytest.warns(UserWarning, match="whole dialogs are rendered from now on"):
        await run_episode(Endless(), RejectCutOff(policy), Task(env_id="e", max_turns=30))
