"""Which sampled reply a client's history continues."""

import json

from hypothesis import given
from hypothesis import strategies as st

from ludic_train.agents.history import History, agreed


def call(arguments, content="I add."):
    function = {"name": "add", "arguments": arguments}
    calls = [{"id": "1", "type": "function", "function": function}]
    return {"role": "assistant", "content": content, "tool_calls": calls}


def user(text):
    return {"role": "user", "content": text}


def adopted(history, messages, root=b""):
    return list(history.adopted(root, messages, list)[1])


def add(history, messages, reply, sampled):
    history.add(history.adopted(b"", messages, list)[0], reply, sampled)
    history.begun = history.continued = 0


def test_a_reply_is_found_in_spite_of_white_space_json_and_new_ids():
    history, sampled = History(), {"role": "assistant", "content": "as sampled"}
    add(history, [user("add")], call('{"a": 1, "b": 2.0}'), [user("add"), sampled])
    again = call('{"b":2,\n"a":1}', " I\n add. ")
    again["tool_calls"][0]["id"] = "other"
    again["refusal"] = None
    result = {"role": "tool", "content": "3", "tool_call_id": "other"}
    assert adopted(history, [user("add"), again, result]) == [user("add"), sampled, result]
    assert (history.continued, history.begun) == (1, 0)


def test_a_rewritten_history_begins_anew():
    history = History()
    add(history, [user("add")], call('{"a": 1}'), [user("add"), "sampled"])
    for messages in (
        [user("add!"), call('{"a": 1}')],
        [user("add"), call('{"a": 2}')],
        [user("add"), call('{"a": true}')],
        [user("add"), call('{"a": 1}', "I subtract.")],
        [user("more"), user("add"), call('{"a": 1}')],
    ):
        assert adopted(history, messages) == messages
    # Other tools are another prompt.
    assert adopted(history, [user("add"), call('{"a": 1}')], b"tools")[1] != "sampled"
    assert history.continued == 0


def test_branches_continue_the_reply_that_they_share():
    history = History()
    add(history, [user("q")], call("{}", "one"), ["first"])
    add(history, [user("q"), call("{}", "one"), user("x")], call("{}", "two"), ["second"])
    assert adopted(history, [user("q"), call("{}", "one"), user("y")]) == ["first", user("y")]
    branch = [user("q"), call("{}", "one"), user("x"), call("{}", "two"), user("z")]
    assert adopted(history, branch) == ["second", user("z")]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=3), VALUES, max_size=4))
def test_json_that_was_written_again_agrees(arguments):
    spaced = json.dumps(arguments, indent=2, ensure_ascii=False)
    turned = json.dumps(dict(reversed(arguments.items())), separators=(",", ":"))
    assert agreed(call(spaced)) == agreed(call(turned))
