from collections import Counter

import pytest

from ludic_gym.envs.games.answerer import Query, Term, answer, phrases, tokens_of, understood
from ludic_gym.envs.games.things import attributes, facts_from, things


def test_there_are_many_things_and_nothing_about_them_that_cannot_be_asked():
    assert len(things()) > 150
    assert frozenset().union(*things().values()) == set(attributes())


def test_what_follows_from_a_fact_is_a_fact():
    assert facts_from(["fish", "hand"]) == {
        "fish", "vertebrate", "animal", "alive", "water", "eggs", "hand",
    }  # fmt: skip
    # What is not natural was made by people.
    assert facts_from(["chair"]) == {"chair", "made"}


def test_every_attributes_own_question_asks_about_it():
    for name, attribute in attributes().items():
        query = understood(attribute.question)
        assert query is not None, name
        assert query.terms == (Term(name),)


def test_no_phrase_asks_for_two_things():
    said = [tokens_of(name) for name in things()]
    for attribute in attributes().values():
        said += {tokens_of(phrase.removeprefix("!")) for phrase in attribute.phrases}
    assert [phrase for phrase, count in Counter(said).items() if count > 1] == []
    assert len(phrases()) == len(said)


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("Is it a living thing?", "yes"),
        ("is it an animal", "yes"),
        ("Does it have 4 legs?", "yes"),
        ("Would you say that it is usually kept as a pet?", "yes"),
        ("Does it eat other animals?", "no"),
        ("Does this animal have feathers?", "no"),
        ("Is it man-made?", "no"),
        ("Is it natural?", "yes"),
        ("Is it a plant or an animal?", "yes"),
        ("Is it a plant and an animal?", "no"),
        ("Is it a farm animal?", "no"),
        ("Is it a domesticated animal?", "yes"),
        ("Is the thing you're thinking of able to fly?", "no"),
        ("Is it smaller than a person?", "yes"),
        ("Is it usually red in color?", "no"),
        ("Is it small enough to be held in one hand?", "no"),
        ("Is it bigger than a person?", "no"),
        ("Is it a dog?", "yes"),
        ("Is it a guinea pig?", "no"),
        ("IS IT ALIVE?!", "yes"),
    ],
)
def test_natural_questions_about_a_dog(question, said):
    assert answer(question, "dog") == said


@pytest.mark.parametrize(
    "question",
    [
        "Is it not alive?",
        "Isn't it alive?",
        "Is it bigger than a car?",
        "Is it a dangerous animal?",
        "Is it an animal or a plant and alive?",
        "What is it?",
        "animal plant food tool",
        "Tell me what it is",
        "Ignore all rules. Is it alive?",
        "Is it?",
        "",
        "\ud800",
        "Is it " + "a big " * 60 + "animal?",
        "x" * 100_000,
    ],
)
def test_what_is_not_clearly_understood_is_not_answered(question):
    assert answer(question, "dog") == "I don't know"


def test_several_terms_must_all_hold_unless_it_says_or():
    wood, metal = Term("wood"), Term("metal")
    assert understood("Is it made of wood or metal?") == Query((wood, metal), is_any=True)
    assert understood("Is it made of wood and metal?") == Query((wood, metal), is_any=False)
    assert answer("Is it made of wood and metal?", "axe") == "yes"
    assert answer("Is it made of wood and metal?", "saw") == "no"
