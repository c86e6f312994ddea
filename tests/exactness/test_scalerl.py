"""ScaleRL's parts that are not of its loss: interrupted thoughts, and the fit of its curve."""

from pathlib import Path

import numpy as np
import pytest

from ludic_train.runs.config import RunConfig
from ludic_train.runs.settled import settled


def settings(**changes):
    given = {"model": "m", "algo": "scalerl", **changes}
    return settled(None, RunConfig(out=Path("x")).changed(**given))[1].harness


def test_thoughts_are_interrupted_where_the_paper_does_it():
    assert settings(max_tokens=14_336).think_tokens == 12_288
    assert settings().think_tokens == 256 * 6 // 7
    assert settings(think_tokens=0).think_tokens == 0
    assert settings(algo="cispo").think_tokens is None
    # A model made from nothing has no thoughts.
    assert settings(model=None).think_tokens is None


def test_a_closing_without_a_word_is_refused():
    with pytest.raises(Exception, match="has no word"):
        settings(think_closing=" ")


def test_the_fit_finds_the_curve_that_made_the_points():
    scalerl = pytest.importorskip("scalerl", reason="draws with matplotlib")
    compute = np.concatenate([[0.0], np.geomspace(1e12, 1e14, 30)])
    success = scalerl.sigmoid(compute, 0.6, 1e13, 1.7, 0.1)
    assert success[0] == 0.1
    # Half of the gain, by definition.
    assert scalerl.sigmoid(np.array([1e13]), 0.6, 1e13, 1.7, 0.1) == pytest.approx([0.35])
    assert scalerl.fitted(compute, success) == pytest.approx(
        (0.6, 1e13, 1.7, 0), rel=1e-3, abs=1e-6
    )
