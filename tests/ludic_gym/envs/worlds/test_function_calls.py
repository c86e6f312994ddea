"""FunctionCalls: hand-worked requests, and replies that must not pass."""

import json

import numpy as np
import pytest

from ludic_gym.envs.tools.calls import Call, problem_with
from ludic_gym.envs.worlds.function_calls import MAKERS, FunctionCallsEnv, Plan, Request, requests
from ludic_gym.envs.worlds.functions import GROUPS, Shares, Sums, Toolbox, Trains, same_call

READ = tuple(Call("read_temperature", {"room": room}) for room in ("hall", "attic"))
WARM = Call("set_temperature", {"room": "hall", "degrees": 21.5})
HOME = Plan(
    offered=("home",),
    world=7,
    requests=(
        Request("How warm is it in the hall, and in the attic?", (READ,)),
        Request("Set the hall to 21.5 degrees.", ((WARM,),), by_state=True),
        Request("Set the temperature of the attic.", ()),
    ),
)


def played(replies, plan=HOME):
    """Number of fulfilled requests after these replies, each a list of calls or a text."""
    env = FunctionCallsEnv("easy")
    env.reset(seed=0)
    env.begin(plan)
    for reply in replies:
        text = (
            reply
            if isinstance(reply, str)
            else json.dumps([json.loads(c.as_json()) for c in reply])
        )
        *_, info = env.step(text)
    assert info["success"] == (info["fulfilled"] == 3)
    return info["fulfilled"]


def test_three_requests_by_the_book():
    assert played([READ, "[]", [WARM], "[]", "[]"]) == 3


def test_calls_may_come_in_another_order_and_in_two_replies():
    assert played([READ[1:], READ[:1], "done", [WARM], "[]", "none."]) == 3


def test_a_sentence_ends_a_request_unless_it_names_a_function():
    said = "<think>read_temperature?</think>It is warm enough. Anything else?"
    assert played([READ, said, [WARM], "Done, it is set.", "Which temperature?"]) == 3
    assert played([READ, *["I call read_temperature."] * 4, [WARM], "[]", "[]"]) == 3


@pytest.mark.parametrize(
    "replies",
    [
        # One call is missing.
        [READ[:1], "[]", [WARM], "[]", "[]"],
        # A call twice.
        [READ + READ[:1], "[]", [WARM], "[]", "[]"],
        # A call that the first request does not need.
        [(*READ, Call("read_temperature", {"room": "garage"})), "[]", [WARM], "[]", "[]"],
        # A call although a fact is missing.
        [
            READ,
            "[]",
            [WARM],
            "[]",
            [Call("set_temperature", {"room": "attic", "degrees": 9})],
            "[]",
        ],
        # A call that is not needed, although it changes nothing.
        [READ, "[]", [WARM], "[]", READ, "[]"],
    ],
)
def test_one_wrong_reply_costs_its_request(replies):
    assert played(replies) == 2


def test_a_wrong_value_costs_all_requests_after_it_until_it_is_put_right():
    wrong = Call("set_temperature", {"room": "hall", "degrees": 21})
    assert played([READ, "[]", [wrong], "[]", "[]"]) == 1


def test_five_replies_without_an_end_end_the_request():
    # READ and four invalid replies: the fifth ends the first request.
    assert played([READ, *["[?"] * 4, [WARM], "[]", "[]"]) == 3


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"train": 7, "seats": 2}, {"seats": 2, "train": 7, "seat_class": "second"}, True),
        ({"train": 7, "seats": 2}, {"train": 7, "seats": 2, "seat_class": "first"}, False),
        ({"train": 7, "seats": 2}, {"train": 7, "seats": 3}, False),
    ],
)
def test_calls_are_compared_by_value_with_defaults(one, other, same):
    assert same_call(Call("book_seats", one), Call("book_seats", other)) == same


def test_calculations_by_hand():
    sums = Sums(np.random.default_rng(0))
    # 3 miles of 1609.344 m are 4.828032 km; 12 inches are a foot.
    assert sums.convert_length(3, "mile", "kilometre") == "4.82803"
    assert sums.convert_length(12, "inch", "foot") == "1"
    # At 12 % a year, 1 % a month: 1000 * 0.01 / (1 - 1.01**-2) = 507.51.
    assert sums.loan_payment(1000, 12, 2) == "507.51"
    assert sums.loan_payment(1200, 0, 12) == "100.00"


def test_rules_of_the_groups():
    trains, shares = (kind(np.random.default_rng(0)) for kind in (Trains, Shares))
    with pytest.raises(ValueError, match="no train 7"):
        trains.book_seats(7, 1)
    shares.owned["ALPN"] = 3
    with pytest.raises(ValueError, match="3 ALPN are owned, 4 cannot be sold"):
        shares.sell_shares("ALPN", 4)


@pytest.mark.parametrize(
    "arguments", [{"value": 10**400}, {"value": 1e308}, {"value": float("nan")}]
)
def test_absurd_numbers_are_results_and_no_exceptions(arguments):
    box = Toolbox(["sums"], np.random.default_rng(0))
    given = {**arguments, "source": "mile", "target": "inch"}
    assert isinstance(box.run(Call("convert_length", given)), str)
    loan = {"amount": 1.0, "rate": 1e-20, "months": 12}
    assert box.run(Call("loan_payment", loan)).startswith("Error: ")


def test_every_request_that_can_be_fulfilled_needs_a_call():
    # A first request that the state fulfils already would be fulfilled by doing nothing.
    for seed in range(300):
        rng = np.random.default_rng(seed)
        box = Toolbox(list(GROUPS), rng)
        before = repr(box.state())
        for group, makers in MAKERS.items():
            for maker in makers:
                request = maker(rng, box)
                assert request.replies, group
                for call in (call for reply in request.replies for call in reply):
                    assert not problem_with(call, box.functions())
                    assert not box.run(call).startswith("Error")
                if request.by_state:
                    assert repr(box.state()) != before, request
                    before = repr(box.state())


def test_conversations_have_all_kinds_of_requests():
    rng, kinds = np.random.default_rng(0), set()
    for _ in range(40):
        box = Toolbox(["trains", "home"], rng)
        for request in requests(rng, box, ["trains", "home"], ["mail"], 5):
            replies = request.replies
            kinds.add((len(replies), max(map(len, replies), default=0) > 1, request.by_state))
    # None; single and parallel by the calls; single, parallel and dependent by the state.
    assert kinds == {
        (0, False, False), (1, False, False), (1, True, False), (1, False, True), (1, True, True),
        (2, False, True),
    }  # fmt: skip
