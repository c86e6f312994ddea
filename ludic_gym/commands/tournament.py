"""`ludic tournament`: let all policies play each other, and rate them.

    $ ludic tournament ludic/TicTacToe-v0 --players random oracle --games 5
    ratings
    player  Elo        95% points games v oracle v random
    oracle +138 [-0, +277]    8.5    10            8.5/10
    random -138 [-277, +0]    1.5    10   1.5/10

The last columns are the points of the row's player against each other player.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, cast

import pettingzoo
import tyro

from ludic_gym.bench.policies import open_policy
from ludic_gym.bench.report import progress_bar
from ludic_gym.bench.tournament import PlayedGame, Rating, bradley_terry, game_of, round_robin
from ludic_gym.commands.arguments import (
    env_name,
    keyword_arguments,
    option,
    parse,
    print_json,
    print_table,
    screen,
)
from ludic_gym.errors import ConfigError
from ludic_gym.limits import RequestLimits
from ludic_gym.records import open_records
from ludic_gym.rollout.episodes import MakePlayer
from ludic_gym.terminal import nearest
from ludic_gym.types import Episode, Sampling, Task

EXAMPLES = """\
ludic tournament ludic/TicTacToe-v0 --players random oracle
ludic tournament ludic/ConnectFour-v0 --players weak=random strong=oracle --games 50
ludic tournament ludic/TicTacToe-v0 --players oracle mine=runs/tic-tac-toe --out games.jsonl"""


@dataclass(frozen=True, kw_only=True)
class TournamentArgs:
    """Let policies play a two-player game against each other, and rate them.

    Every pair plays the same games from both seats. Ratings are Bradley-Terry's on Elo's scale:
    400 points more mean odds of ten to one, 0 is the mean.
    """

    env_id: Annotated[tyro.conf.Positional[str], option("ID")]
    """A two-player game, as in `ludic list`."""
    players: Annotated[tuple[str, ...], option("[NAME=]POLICY ...")]
    """At least two policies, each as for `ludic bench --policy`."""
    games: int = 20
    """Pairs of games with swapped seats, for every pair of players."""
    env_kwargs: Annotated[tuple[str, ...], option("KEY=VALUE ...")] = ()
    """Arguments of the env."""
    seed: int = 0
    """Game i is played with this seed + i."""
    concurrency: int = 64
    """Games in flight."""
    timeout_s: Annotated[float | None, option("SECONDS")] = None
    """Seconds after which a game counts as failed; by default never."""
    max_turns: int = 1000
    """Turns of a player after which a game is truncated."""
    temperature: float = 1.0
    """Sampling temperature of models."""
    max_tokens: int = 256
    """Limit of tokens per reply."""
    max_length: Annotated[int | None, option("N")] = None
    """Limit of tokens per prompt and reply together; by default that of the model or server."""
    limits: Annotated[RequestLimits, tyro.conf.arg(name="")] = field(default_factory=RequestLimits)
    out: Annotated[Path | None, option("FILE")] = None
    """A new jsonl file for the games."""
    json: bool = False
    """Print JSON in place of the table."""


def main(argv: list[str]) -> int:
    """Run `ludic tournament`; 1 if a game failed.

    Failed games are printed and do not count for the ratings. Raises ConfigError for fewer than
    two players, a file that exists, or an environment that is no game for two.
    """
    args = parse(TournamentArgs, argv, command="tournament", examples=EXAMPLES)
    specs = named_players(args.players)
    # Seats and seeds repeat from run to run, so appended games would count twice.
    if args.out is not None and args.out.exists():
        raise ConfigError(f"{args.out} exists; name another file")
    episodes = asyncio.run(played(args, specs))
    games = [game_of(episode) for episode in episodes if episode.error is None]
    failed = [episode for episode in episodes if episode.error is not None]
    ratings = bradley_terry(games) if games else ()
    if args.json:
        errors = {episode.index: episode.error for episode in failed}
        print_json({"ratings": [asdict(rating) for rating in ratings], "errors": errors})
        return 1 if failed else 0
    if games:
        print_ratings(ratings, games)
    for episode in failed:
        screen().print(f"game {episode.index}: {episode.error}", style="red", markup=False)
    return 1 if failed else 0


def named_players(specs: tuple[str, ...]) -> dict[str, str]:
    """The policies by the name of the player, which is the policy itself if none is given.

    Raises ConfigError for fewer than two players, and for a name that occurs twice.

    >>> named_players(("random", "mine=runs/x"))
    {'random': 'random', 'mine': 'runs/x'}
    """
    # At the first "=" only, because the query of an address may have others.
    pairs = [spec.split("=", 1) if "=" in spec else [spec, spec] for spec in specs]
    if len({name for name, _ in pairs}) < max(2, len(pairs)):
        raise ConfigError(f"name at least two players, each once; got {' '.join(specs) or 'none'}")
    return dict(cast(list[tuple[str, str]], pairs))


async def played(args: TournamentArgs, specs: Mapping[str, str]) -> list[Episode]:
    """Play all games behind a bar; each is written to the file as it ends.

    specs: policies by the name of the player. Returns the games in order of completion, failed
    ones with their error. Raises ConfigError for an env that is no game for two, or an unknown
    policy.
    """
    env_id = env_name(args.env_id)
    if env_id not in pettingzoo.aec_registry:
        near = nearest(env_id, pettingzoo.aec_registry)
        hint = f"; did you mean {near!r}?" if near else ""
        raise ConfigError(f"{env_id} is no two-player game (see `ludic list`){hint}")
    task = Task(
        env_id=env_id,
        kwargs=keyword_arguments(args.env_kwargs),
        seed=args.seed,
        sampling=Sampling(
            temperature=args.temperature,
            max_tokens=args.max_tokens,
            max_length=args.max_length,
        ),
        max_turns=args.max_turns,
    )
    ended = []
    # A stack, because all policies, the file and the bar are open until the last game.
    async with AsyncExitStack() as stack:
        # The reference policies accept both kinds of env; other policies ignore the env.
        players = {
            name: cast(
                MakePlayer,
                await stack.enter_async_context(open_policy(spec, limits=args.limits)),
            )
            for name, spec in specs.items()
        }
        record = stack.enter_context(open_records(args.out)) if args.out else None
        # n (n - 1) / 2 pairs of players, each of which plays every game from both seats.
        total = args.games * len(specs) * (len(specs) - 1)
        show = stack.enter_context(progress_bar("games", total=total))
        async for episode in round_robin(
            players,
            task,
            games=args.games,
            concurrency=args.concurrency,
            timeout_s=args.timeout_s,
        ):
            if record is not None:
                record(episode)
            ended.append(episode)
            show(episode)
    return ended


def print_ratings(ratings: tuple[Rating, ...], games: list[PlayedGame]) -> None:
    """Print a line per player, the strongest first, with its points against each other.

    ratings: in the order of the lines. games: those that the ratings are from.
    """
    names = [rating.player for rating in ratings]
    print_table(
        ("player", "Elo", "95%", "points", "games", *(f"v {name}" for name in names)),
        [
            (
                rating.player,
                f"{rating.elo:+.0f}",
                f"[{rating.interval.low:+.0f}, {rating.interval.high:+.0f}]",
                f"{rating.points:g}",
                str(rating.games),
                *(points_from(games, rating.player, name) for name in names),
            )
            for rating in ratings
        ],
        title="ratings",
        numbers=True,
    )


def points_from(games: list[PlayedGame], player: str, other: str) -> str:
    """The points of a player against another, of the number of games; "" against itself.

    >>> points_from([PlayedGame("a", "b", 1.0), PlayedGame("b", "a", 0.5)], "a", "b")
    '1.5/2'
    """
    if player == other:
        return ""
    # A result is the first player's share of one point; the rest is the second player's.
    won = [game.result for game in games if game[:2] == (player, other)]
    lost = [game.result for game in games if game[:2] == (other, player)]
    return f"{sum(won) + len(lost) - sum(lost):g}/{len(won) + len(lost)}"
