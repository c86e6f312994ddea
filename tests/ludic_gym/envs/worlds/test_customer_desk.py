"""CustomerDesk: the policy, the customer, and what a success needs."""

import json
import random
import re
from dataclasses import replace

import numpy as np
import pytest

from ludic_gym.envs.worlds.businesses import MOST_BAGS
from ludic_gym.envs.worlds.customer_desk import DOMAINS, CustomerDeskEnv, open_desk
from ludic_gym.envs.worlds.desk import asking


def case(domain, wanted, *, refused, level="easy"):
    """An env and its customer, at the first seed whose first wish is of that kind."""
    env = CustomerDeskEnv(level, domain)
    for seed in range(500):
        env.reset(seed=seed)
        wish = env.customer.wish
        if wish.wanted.name == wanted and bool(wish.rule) == refused:
            return env, wish
    raise AssertionError(f"no seed has {wanted}")


def say(name, **arguments):
    return json.dumps({"name": name, "arguments": arguments})


def end_of(env, *actions):
    """Info of the last step, which has to end the episode."""
    for action in actions:
        _, _, over, _, info = env.step(action)
    assert over
    return info


def resolved(wish, outcome="done", **rule):
    return say("resolve", number=wish.wanted.arguments["number"], outcome=outcome, **rule)


def by_the_book(env, wish):
    """Actions that identify the customer and confirm the change."""
    arguments = wish.wanted.arguments
    values = " ".join(map(str, arguments.values()))
    return [
        "Your e-mail address, please, and the number?",
        say("identify", email=env.email, number=arguments["number"]),
        say("show", number=arguments["number"]),
        f"Do you confirm {values}?",
    ]


def test_the_tools_are_those_of_the_desk_and_one_of_them_speaks():
    env, wish = case("retail", "cancel_order", refused=False)
    names = [tool["function"]["name"] for tool in env.action_tools]
    assert {"identify", "cancel_order", "say"} <= set(names)
    assert names != [tool["function"]["name"] for tool in CustomerDeskEnv("easy").action_tools]
    said = [say("say", text=text) if text[0] != "{" else text for text in by_the_book(env, wish)]
    assert end_of(env, *said, wish.wanted.as_json(), resolved(wish))["success"]


def test_a_change_by_the_book_succeeds():
    env, wish = case("retail", "cancel_order", refused=False)
    actions = [*by_the_book(env, wish), wish.wanted.as_json(), resolved(wish)]
    info = end_of(env, *actions)
    assert (info["success"], info["violations"], info["resolved"]) == (True, 0, 1)


@pytest.mark.parametrize(
    ("left_out", "broken"),
    # Without the identification, the look at the record, the change and the resolution break R1.
    [(1, "R1, R1, R1"), (2, "R1"), (3, "R2")],
)
def test_a_step_that_is_left_out_breaks_its_rule(left_out, broken):
    env, wish = case("retail", "cancel_order", refused=False)
    steps = by_the_book(env, wish)
    del steps[left_out]
    info = end_of(env, *steps, wish.wanted.as_json(), resolved(wish))
    # The database is right, and still the task fails.
    assert env.desk.state() == env.goal.state()
    assert (info["success"], info["violations"], info["broken"]) == (
        False,
        broken.count("R"),
        broken,
    )


def test_another_change_than_the_agreed_one_breaks_r2():
    env, wish = case("airline", "set_bags", refused=False)
    number = wish.wanted.arguments["number"]
    more = say("set_bags", number=number, bags=9)
    info = end_of(env, *by_the_book(env, wish), more, wish.wanted.as_json(), resolved(wish))
    assert (info["success"], info["broken"]) == (False, "R2")


def test_a_refusal_needs_its_rule_and_no_change():
    for rule, success in (("", False), ("R9", False), (None, True)):
        env, wish = case("library", "renew_loan", refused=True)
        named = wish.rule if rule is None else rule
        info = end_of(env, *by_the_book(env, wish)[:3], resolved(wish, "refused", rule=named))
        assert (info["success"], info["violations"]) == (success, 0)


def test_a_forbidden_change_breaks_its_rule_even_if_the_customer_agrees():
    env, wish = case("library", "renew_loan", refused=True)
    actions = [*by_the_book(env, wish), wish.wanted.as_json()]
    info = end_of(env, *actions, resolved(wish, "refused", rule=wish.rule))
    assert (info["success"], info["broken"]) == (False, wish.rule)


def test_records_of_others_are_not_shown():
    env, wish = case("airline", "cancel_booking", refused=False)
    other = next(n for n, r in env.desk.records.items() if r["email"] != env.email)
    steps = by_the_book(env, wish)
    steps.insert(3, say("show", number=other))
    info = end_of(env, *steps, wish.wanted.as_json(), resolved(wish))
    assert (info["success"], info["broken"]) == (False, "R1")


def test_the_customer_tells_only_what_is_asked():
    env, wish = case("airline", "set_bags", refused=False)
    customer, desk = env.customer, env.desk
    assert customer.reply("Hello.", desk) == (
        f"{wish.opening} If you need to know something, ask me for "
        '"your e-mail address", "the number of the booking", "how many bags you want to take".'
    )
    assert customer.reply("And your e-mail?", desk) == wish.facts["email"]
    assert customer.told == {"email"}
    assert customer.reply("Which booking, and how many bags?", desk) == (
        f"{wish.facts['number']} {wish.facts['bags']}"
    )
    assert customer.agreed is None


def test_a_customer_agrees_only_to_what_is_wanted_with_all_values():
    env, wish = case("airline", "set_bags", refused=False)
    customer, desk = env.customer, env.desk
    number, bags = wish.wanted.arguments["number"], wish.wanted.arguments["bags"]
    customer.reply(f"Shall I set {number} to {bags + 1} bags?", desk)
    customer.reply(f"Shall I set {number} to {bags}0 bags?", desk)
    customer.reply(f"Do you confirm? {number} {bags} " + "1 2 3 4 5 " * 200, desk)
    assert customer.agreed is None
    assert customer.reply(f"Shall I set {number} to {bags} bags?", desk) == "Yes, please do that."
    assert customer.agreed == wish.wanted


def test_a_second_thought_has_to_be_confirmed_again():
    env = CustomerDeskEnv("medium", "airline")
    env.reset(seed=next(s for s in range(200) if env.reset(seed=s) and env.customer.wish.thought))
    customer, wish = env.customer, env.customer.wish
    first, second = (" ".join(map(str, c.arguments.values())) for c in (wish.wanted, wish.final))
    assert customer.reply(f"Do you confirm {first}?", env.desk) == wish.thought[0]
    assert customer.agreed is None
    customer.reply(f"Do you confirm {second}?", env.desk)
    assert customer.agreed == wish.final


def test_an_insistent_customer_accepts_the_second_refusal():
    env, _ = case("retail", "cancel_order", refused=True, level="hard")
    assert "colleague" in env.customer.reply("Sorry, that is impossible.", env.desk)
    assert "I understand" in env.customer.reply("Sorry, that is impossible.", env.desk)


@pytest.mark.parametrize("domain", DOMAINS)
def test_wishes_follow_the_policy_by_a_second_reading(domain):
    """The rules, read from the policy once more, independently of the code that draws wishes."""

    def rules(desk, wish):
        record, given = desk.records[wish.wanted.arguments["number"]], wish.wanted.arguments
        bags, flight = (
            given.get("bags", 0),
            desk.flights.get(given.get("flight")) if domain == "airline" else None,
        )
        late = record.get("days_since_delivery", 0) > 30
        broken = {
            "move_booking": lambda: [
                ("R3", record["fare"] == "basic"),
                ("R6", not flight["seats_left"]),
            ],
            "cancel_booking": lambda: [("R4", record["checked_in"])],
            "set_bags": lambda: [("R5", bags > MOST_BAGS[record["cabin"]])],
            "cancel_order": lambda: [("R3", record["status"] != "pending")],
            "exchange_order": lambda: [
                ("R4", late),
                ("R6", given["colour"] not in record["in_stock"]),
            ],
            "return_order": lambda: [("R4", late), ("R5", given["refund_to"] != record["paid_by"])],
            "renew_loan": lambda: [
                ("R3", record["renewals"] >= 2),
                ("R4", record["reserved_by_another"]),
            ],
            "waive_fine": lambda: [("R5", record["fine"] > 5)],
            "change_branch": lambda: [("R6", record["fine"] > 0)],
        }[wish.wanted.name]()
        return [rule for rule, holds in broken if holds]

    refused = 0
    for seed in range(150):
        desk, wishes = open_desk(domain, seed, 3)
        for wish in wishes:
            assert rules(desk, wish) == ([wish.rule] if wish.rule else [])
            refused += bool(wish.rule)
            if wish.thought:
                changed = type(wish)(opening="", facts={}, wanted=wish.final)
                assert not wish.rule
                assert rules(desk, changed) == []
                assert wish.final != wish.wanted
    assert 0.25 < refused / 450 < 0.6


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_phrase_asks_for_its_fact_alone(domain):
    desk = DOMAINS[domain](np.random.default_rng(0))
    facts = ("email", "number", *desk.facts_asked)
    for fact in facts:
        text = f"please tell me {asking(fact, desk)[1]}."
        assert [f for f in facts if re.search(asking(f, desk)[0], text)] == [fact]


def blind_case(env, rule):
    """True if a case is solved by the steps of the oracle with the same verdict on every request.

    rule: by which all are refused; "" if all are fulfilled.
    """
    over = False
    while not over:
        customer = env.customer
        wishes = [replace(wish, rule=rule) for wish in customer.wishes]
        # The oracle reads the verdict from the wish; the goal of the episode stays.
        customer.wishes, real = wishes, customer.wishes
        action = env.best_action()
        customer.wishes = real
        _, _, over, _, info = env.step(action)
    return info["success"]


@pytest.mark.long
def test_who_does_not_read_the_policy_fails_in_most_cases_of_the_default_level():
    env, rng, solved = CustomerDeskEnv(), random.Random(0), {"fulfil": 0, "refuse": 0}
    for seed in range(100):
        env.reset(seed=seed)
        solved["fulfil"] += blind_case(env, "")
        env.reset(seed=seed)
        solved["refuse"] += blind_case(env, f"R{rng.randrange(3, 3 + len(env.desk.policy))}")
    # 23 and 2 % of 1,000; four standard errors of 100 are 17 and 6 points.
    assert 6 <= solved["fulfil"] <= 40
    assert solved["refuse"] <= 8
