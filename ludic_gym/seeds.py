"""Seeds made from seeds, so that every draw has its own and none depends on the order of work."""

from __future__ import annotations

_MASK = (1 << 64) - 1


def derived_seed(seed: int, index: int) -> int:
    """The `index`-th output of the SplitMix64 generator that starts at `seed`, as 63 bits.

    Steele, Lea and Flood 2014, doi:10.1145/2714064.2660195.
    """
    z = (seed + (index + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return (z ^ (z >> 31)) >> 1
