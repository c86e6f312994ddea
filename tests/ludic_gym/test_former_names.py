"""Names of the specification: each answers with what to write, which exists."""

import re
from importlib import import_module

import pytest

import ludic_gym as lg
from ludic_gym.former_names import FORMER


@pytest.mark.parametrize("name", FORMER)
def test_a_name_of_the_specification_answers_with_the_new_one(name):
    with pytest.raises(AttributeError, match=f"has no {name}: write "):
        getattr(lg, name)
    for package, new in re.findall(r"\b(lg|lt)\.(\w+)", FORMER[name]):
        if package == "lt":
            pytest.importorskip("torch", reason="names of the trainer need torch")
            assert hasattr(import_module("ludic_train"), new)
        else:
            assert hasattr(lg, new)


def test_the_trainer_answers_too():
    pytest.importorskip("torch", reason="names of the trainer need torch")
    lt = import_module("ludic_train")
    with pytest.raises(AttributeError, match=r"write lt\.grpo\(\)"):
        _ = lt.make_grpo


def test_other_names_are_unknown_as_ever():
    with pytest.raises(AttributeError, match="Evaluate"):
        _ = lg.Evaluate


def test_a_program_that_names_a_server_by_openai_runs():
    assert lg.openai is lg.model
