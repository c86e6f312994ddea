import math

import pytest

from ludic_train.errors import MetricError
from ludic_train.loggers.loggers import JSONLLogger
from ludic_train.loggers.plots import plot_curve, running_mean


@pytest.fixture
def jsonl(tmp_path):
    logger = JSONLLogger(tmp_path / "metrics.jsonl")
    for update in range(1, 61):
        logger.log(update, {"reward": 1 - 1 / update, "loss": math.nan if update == 7 else 0.1})
    logger.log(60, {"eval/success": 0.9})
    logger.close()
    return logger.path


def test_the_curve_is_a_png(jsonl, tmp_path):
    from matplotlib.image import imread

    metrics = ["reward", "loss", "eval/success", "reward"]
    path = plot_curve(jsonl, tmp_path / "curve.png", metrics, title="Tic-Tac-Toe")
    image = imread(path)
    assert image.shape[0] > 200
    assert image.shape[1] > image.shape[0]
    assert image.std() > 0.01


def test_a_metric_that_was_never_logged_is_refused_with_what_there_is(jsonl, tmp_path):
    with pytest.raises(MetricError, match=r"'rewards'.*eval/success, loss, reward"):
        plot_curve(jsonl, tmp_path / "curve.png", ["rewards"])


def test_at_least_one_metric_is_drawn(jsonl, tmp_path):
    with pytest.raises(MetricError, match="at least one"):
        plot_curve(jsonl, tmp_path / "curve.png", [])


def test_running_mean_by_hand():
    # 1; (1+3)/2; (3+5)/2; (5+1)/2
    assert running_mean([1, 3, 5, 1], 2) == [1.0, 2.0, 4.0, 3.0]
