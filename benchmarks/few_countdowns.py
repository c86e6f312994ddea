"""Countdown with a fixed set of tasks, which come again in every pass over them."""

from functools import cache

import gymnasium as gym

import ludic_gym as lg
from ludic_gym.envs.puzzles.countdown import CountdownEnv, grade_countdown

ROWS = 2_000


@cache
def rows() -> list[dict[str, str]]:
    """Questions of three numbers with their targets, equal in every process."""
    env = gym.make("ludic/Countdown-v0", numbers=3)
    found = []
    for seed in range(ROWS):
        question, _ = env.reset(seed=seed)
        numbers, target = (line.partition(": ")[2] for line in question.splitlines())
        found.append({"question": question, "answer": f"{numbers} = {target}"})
    env.close()
    return found


def make(**kwargs: object) -> gym.Env[str, str]:
    """The environment, with held-out rows for evaluations."""
    return lg.QAEnv(rows(), prompt=CountdownEnv.prompt, grader=grade_countdown, **kwargs)


gym.register(id="bench/FewCountdowns-v0", entry_point=make)
