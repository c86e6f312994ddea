"""SearchQA: facts read back from the passages, answers found a second way, calls and support."""

import copy
import json
import pickle
import re

import gymnasium as gym
import numpy as np
import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.envs.worlds.archive import (
    COUNTS,
    INVERSE,
    NOUNS,
    QUESTIONS,
    SENTENCES,
    Query,
    country,
    index,
    passage,
    question_text,
    titles,
)
from ludic_gym.envs.worlds.search_qa import SearchQAEnv, read

ID = "ludic/SearchQA-v0"
WORKS = "Tourheir Works"
# "Tourheir Works ... was founded by Wanstoum Prurkchin", who "was born in Gomendmouth".
QUERY = Query(
    text=f"In which town was the founder of {WORKS} born?",
    answer="Gomendmouth",
    start=titles()[WORKS.lower()],
    path=("company.founder", "person.birthplace"),
    support=(titles()[WORKS.lower()], titles()["wanstoum prurkchin"]),
)


def call(name, /, **arguments):
    return json.dumps({"name": name, "arguments": arguments})


def opening(*names):
    return [call("open", title=name) for name in names]


def played(*replies, query=QUERY):
    """The last turn of an episode of the query."""
    env = SearchQAEnv("easy")
    env.reset(seed=0)
    env.query = query
    for reply in replies:
        turn = env.step(reply)
    return turn


BOTH = opening(WORKS, "Wanstoum Prurkchin")


@pytest.mark.parametrize("answer", ["Gomendmouth", "the GOMENDMOUTH."])
def test_an_exact_answer_with_its_passages_is_right(answer):
    *_, info = played(*BOTH, call("answer", text=answer))
    assert (info["success"], info["exact"], info["support"]) == (True, True, 1.0)
    assert played(*BOTH, f"<answer>{answer}</answer>")[1] == 1.0


@pytest.mark.parametrize(
    ("replies", "exact", "support"),
    [
        # Right, but guessed, or without the first passage.
        ([call("answer", text="Gomendmouth")], True, 0.0),
        ([*BOTH[1:], call("answer", text="Gomendmouth")], True, 0.5),
        # Wrong, several answers, and none.
        ([*BOTH, call("answer", text="Falbreirford")], False, 1.0),
        ([*BOTH, call("answer", text="Gomendmouth or Falbreirford")], False, 1.0),
        ([*BOTH, call("answer", text="")], False, 1.0),
        ([*BOTH, *["Gomendmouth"] * 6], False, 1.0),
    ],
)
def test_anything_else_is_not_paid(replies, exact, support):
    _, reward, terminated, _, info = played(*replies)
    assert (reward, terminated) == (0.0, True)
    assert (info["exact"], info["support"]) == (exact, support)


def test_a_title_is_read_with_its_kind_and_in_any_case():
    text = played(*opening("tourheir  WORKS (company)"))[0]
    assert text == f"{passage(QUERY.start)}\nTurns left: 7"


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        ("hello", "that is not JSON"),
        ("[]", "a reply has one call"),
        (call("read", title="x"), "there is no tool 'read'; there are search, open, answer"),
        (call("open", name="x"), "title"),
        (call("search", query=3), "query"),
    ],
)
def test_a_reply_that_is_no_call_is_answered_by_its_error(reply, error):
    text, _, over, _, info = played(reply)
    assert text.startswith("Error: ")
    assert error in text
    assert (info["illegal"], over) == (True, False)
    assert read(reply)[1]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("search: Tourheir Works", ("search", {"query": "Tourheir Works"})),
        ('search("Tourheir Works")', ("search", {"query": "Tourheir Works"})),
        (
            "<think>?</think>Open The Last Window of Draendca",
            ("open", {"title": "The Last Window of Draendca"}),
        ),
        ("answer 1904", ("answer", {"text": "1904"})),
        ('```json\n{"name": "answer", "arguments": {"text": "x"}}\n```', ("answer", {"text": "x"})),
    ],
)
def test_calls_are_read_in_several_forms(reply, expected):
    found, problem = read(reply)
    assert (found.name, found.arguments, problem) == (*expected, "")


def test_a_search_gives_five_titles_with_kinds():
    lines = played(call("search", query=f"who founded {WORKS}?"))[0].splitlines()
    assert (lines[0], len(lines), lines[-1]) == (f"{WORKS} (company)", 6, "Turns left: 7")
    assert played(call("search", query="qqq"))[0].startswith("No passage has these words.")


def read_back(number):
    """The facts that the text of a passage states, found with the templates as patterns."""
    thing, text = country()[number], passage(number)
    found = {}
    for key, sentences in SENTENCES.items():
        kind, relation = key.split(".")
        for sentence in sentences if kind == thing.kind else ():
            pattern = re.escape(sentence).replace(r"\{s\}", re.escape(thing.name))
            pattern = pattern.replace(r"a\ \{o\}", r"an?\ \{o\}")
            pattern = pattern.replace(r"\{o\}", "([^.]+)")
            if match := re.search(rf"(?:(?<=\. )|^){pattern}(?= |$)", text, re.IGNORECASE):
                found[relation] = match[1]
    return found


def stated(thing):
    """The facts of a thing, with names in the place of numbers."""
    return {
        relation: country()[value].name if isinstance(value, int) else value
        for relation, value in thing.facts.items()
    }


@pytest.mark.parametrize("every", [150, pytest.param(1, marks=pytest.mark.slow)])
def test_every_passage_states_its_facts_and_no_others(every):
    for thing in country()[::every]:
        assert read_back(thing.number) == stated(thing), passage(thing.number)


def answers(query, triples):
    """All ends of the chain, by a join over (kind and relation, subject, object)."""
    here = {country()[query.start].name}
    for relation in query.path:
        is_inverse = relation.startswith(INVERSE)
        here = {
            subject if is_inverse else end
            for name, subject, end in triples[relation.removeprefix(INVERSE)]
            if (end if is_inverse else subject) in here
        }
    return here


def test_every_question_has_one_answer_that_a_join_over_all_facts_finds():
    triples = {key: [] for key in SENTENCES}
    for thing in country():
        for relation, end in stated(thing).items():
            key = f"{thing.kind}.{relation}"
            triples[key].append((key, thing.name, end))
    rng = np.random.default_rng(0)
    for hops in (1, 2, 3, 4) * 20:
        query = question_text(hops, rng)
        assert answers(query, triples) == {query.answer}, query.text
        assert len(set(query.support)) == hops
        assert query.answer not in query.text


def test_the_support_holds_the_answer_and_the_links_of_the_chain():
    rng = np.random.default_rng(1)
    for hops in (1, 2, 3, 4) * 25:
        query = question_text(hops, rng)
        texts = [f"{country()[number].name} {passage(number)}" for number in query.support]
        assert country()[query.start].name in texts[0]
        assert query.answer in texts[-1]
        for before, relation, after in zip(texts, query.path[1:], query.support[1:], strict=False):
            # The next passage is named in this one, unless it is found by what it says of its own.
            assert relation.startswith(INVERSE) or country()[after].name in before


def test_the_country_has_unique_names_and_every_relation_has_words():
    assert len(country()) == len(titles()) == sum(COUNTS.values()) == 21_000
    assert {name.removeprefix(INVERSE) for name in QUESTIONS} == set(SENTENCES)
    # In a chain, nothing may follow the inner phrase.
    assert all(noun.endswith("{x}") for nouns in NOUNS.values() for noun in nouns)


def test_the_search_finds_what_is_named_and_what_names_it():
    rng = np.random.default_rng(2)
    queries = [question_text(1, rng) for _ in range(200)]
    found = [set(index().best(query.text, 5)) & set(query.support) for query in queries]
    assert sum(map(bool, found)) >= 0.95 * len(queries)


def test_splits_have_no_chain_in_common():
    chains = {}
    for split in ("train", "test"):
        env = gym.make(ID, level="easy", split=split).unwrapped
        chains[split] = set()
        for seed in range(400):
            env.reset(seed=seed)
            chains[split].add(env.query.chain)
    assert len(chains["test"]) > 300
    assert not chains["train"] & chains["test"]


def test_an_episode_is_small_when_it_is_copied():
    env = gym.make(ID).unwrapped
    env.reset(seed=0)
    env.step(env.oracle_action())
    twins = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    assert len(pickle.dumps(env)) < 5_000
    action = env.oracle_action()
    assert [twin.step(action) for twin in twins] == [env.step(action)] * 2
