"""The environments of other packages, as data: ids and the entry points of their adapters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from envs_registry.reasoning_gym_sets import REASONING_GYM
from envs_registry.textarena_games import TEXTARENA_ONE_PLAYER, TEXTARENA_TWO_PLAYER

_REASONING = "ludic_gym.adapters.reasoning_gym_env:ReasoningGymEnv"
_TEXTARENA = "ludic_gym.adapters.textarena_env:TextArenaEnv"
_BOARD = "ludic_gym.adapters.board_env:BoardEnv"
_BOARD_AEC = "ludic_gym.adapters.board_env:BoardAECEnv"
_BOARDS = ("chess", "connect_four", "go", "tictactoe")
_TEXTARENA_AEC = "ludic_gym.adapters.textarena_env:TextArenaAECEnv"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterEntry:
    """An environment of another package, which is imported only when the environment is made.

    id: name in all registries.
    gym, aec: entry points "module:attribute" for Gymnasium and PettingZoo; "" if there is no such
        view.
    kwargs: arguments of the adapter.
    package: required package.
    extra: extra of Ludic that installs the package.
    """

    id: str
    gym: str = ""
    aec: str = ""
    kwargs: Mapping[str, str]
    package: str
    extra: str = "adapters"


def adapter_entries() -> Iterator[AdapterEntry]:
    """All entries, by package and name."""
    for name in REASONING_GYM:
        yield AdapterEntry(
            id=f"ludic/rg-{name}-v0",
            gym=_REASONING,
            kwargs={"dataset": name},
            package="reasoning-gym",
        )
    for name in TEXTARENA_ONE_PLAYER:
        yield AdapterEntry(
            id=f"ludic/ta-{name}-v0",
            gym=_TEXTARENA,
            kwargs={"game": f"{name}-v0"},
            package="textarena",
        )
    for name in TEXTARENA_TWO_PLAYER:
        yield AdapterEntry(
            id=f"ludic/ta-{name}-v0",
            aec=_TEXTARENA_AEC,
            kwargs={"game": f"{name}-v0"},
            package="textarena",
        )
    for name in _BOARDS:
        yield AdapterEntry(
            id=f"ludic/pz-{name}-v0",
            gym=_BOARD,
            aec=_BOARD_AEC,
            kwargs={"game": name},
            package="pygame-ce",
            extra="boards",
        )


ADAPTERS: tuple[AdapterEntry, ...] = tuple(adapter_entries())
