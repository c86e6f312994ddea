"""The examples in docstrings print what they say."""

import pytest
from docstring_examples import modules_with_examples, tried

import ludic_train


@pytest.mark.parametrize("module", modules_with_examples(ludic_train))
def test_the_examples_of_a_module_hold(module):
    attempted, failed = tried(module)
    assert attempted
    assert not failed
