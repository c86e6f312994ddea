"""The sampling of a turn: all parameters of the episode, with a seed of its own."""

from dataclasses import fields, replace

from ludic_gym.sampling import derived_seed, turn_sampling
from ludic_gym.types import Sampling

CHANGED = Sampling(
    temperature=0.5, top_p=0.9, top_k=7, min_p=0.1, max_tokens=9, max_length=30, stop=("x",), seed=3
)


def test_a_turn_keeps_every_parameter_but_the_seed() -> None:
    default = Sampling()
    assert all(getattr(CHANGED, f.name) != getattr(default, f.name) for f in fields(Sampling))
    assert turn_sampling(CHANGED, 2) == replace(CHANGED, seed=derived_seed(3, 2))
