import time

import pytest

from ludic_gym.bench.runner import run_bench
from ludic_gym.types import Sampling, Task
from ludic_train.inference.client import policy_from_run
from ludic_train.runs.tasks import EVALUATIONS_FROM
from ludic_train.small_model.make import SIZES, make_small_model

# CPU-seconds of one core, with room for a busy machine.
LIMITS = {"small": 1_500, "tiny": 180}


@pytest.mark.slow
@pytest.mark.parametrize("size", ["tiny", "small"])
async def test_a_model_is_made_in_time_and_answers_in_form(tmp_path, size):
    started = time.process_time()
    await make_small_model(SIZES[size], tmp_path / size)
    assert time.process_time() - started < LIMITS[size]
    assert sum(path.stat().st_size for path in (tmp_path / size).iterdir()) < 6_000_000
    tasks = [
        Task(env_id="ludic/Countdown-v0", seed=seed, sampling=Sampling(max_tokens=64))
        for seed in range(EVALUATIONS_FROM, EVALUATIONS_FROM + 100)
    ]
    rules = []
    await run_bench(
        tasks,
        policy_from_run(tmp_path / size),
        on_episode=lambda episode: rules.append(episode.rollouts[0].steps[-1].info["rule"]),
    )
    assert rules.count("tag") >= 90
