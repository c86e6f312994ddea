import math

import pytest

from ludic_train.errors import MetricError
from ludic_train.loggers.loggers import JSONLLogger
from ludic_train.loggers.plots import plot_curve


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


@pytest.mark.parametrize(
    ("metrics", "reason"),
    [(["rewards"], r"'rewards'.*eval/success, loss, reward"), ([], "at least one")],
)
def test_metrics_that_were_not_logged_are_refused_with_what_there_is(
    jsonl, tmp_path, metrics, reason
):
    with pytest.raises(MetricError, match=reason):
        plot_curve(jsonl, tmp_path / "curve.png", metrics)
