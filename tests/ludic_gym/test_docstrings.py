"""The examples in docstrings print what they say."""

import pytest
from docstring_examples import modules_with_examples, tried

import ludic_gym


@pytest.mark.parametrize("module", modules_with_examples(ludic_gym))
def test_the_examples_of_a_module_hold(module):
    attempted, failed = tried(module)
    assert attempted
    assert not failed
