"""`ludic tournament`: everybody plays everybody, ratings say who is how strong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, cast

import pettingzoo
import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from ludic_gym.bench.policies import open_policy
from ludic_gym.bench.ratings import PlayedGame, Rating, bradley_terry
from ludic_gym.bench.tournament import Pairings, game_of, round_robin
from ludic_gym.commands.arguments import env_name, keyword_arguments, option, parse, screen
from ludic_gym.errors import ConfigError
from ludic_gym.records import open_records
from ludic_gym.rollout.episodes import MakePlayer
from ludic_gym.types import Episode, Sampling, Task

EXAMPLES = """\
ludic tournament ludic/TicTacToe-v0 --players random oracle
ludic tournament ludic/ConnectFour-v0 --players weak=random strong=oracle --games 50
ludic tournament ludic/TicTacToe-v0 --players oracle mine=runs/tic-tac-toe --out games.jsonl"""
BAR = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())


@dataclass(frozen=True, kw_only=True)
class TournamentArgs:
    """Let policies play a game for two against each other, and rate them.

    Every two play the same games from both seats. Ratings are Bradley-Terry's on Elo's scale:
    400 points more mean odds of ten to one, 0 is the mean.
    """

    env_id: Annotated[tyro.conf.Positional[str], option("ID")]
    """A game for two, as `ludic list` shows it."""
    players: Annotated[tuple[str, ...], option("[NAME=]POLICY ...")]
    """At least two policies, each as `ludic bench --policy` takes it."""
    games: int = 20
    """Pairs of games with swapped seats, for every two players."""
    env_kwargs: Annotated[tuple[str, ...], option("KEY=VALUE ...")] = ()
    """Arguments of the env."""
    seed: int = 0
    """Game i is played with this seed + i."""
    concurrency: int = 64
    """Games in flight."""
    timeout_s: Annotated[float | None, option("SECONDS")] = None
    """Seconds after which a game counts as failed; by default never."""
    max_turns: int = 1000
    """Turns of a player after which a game is cut short."""
    temperature: float = 1.0
    """Sampling temperature of models."""
    max_tokens: int = 256
    """Most tokens of one reply."""
    out: Annotated[Path | None, option("FILE")] = None
    """A new jsonl file for the games."""


def main(argv: list[str]) -> int:
    """Runs `ludic tournament`; 1 if a game failed."""
    args = parse(TournamentArgs, argv, command="tournament", examples=EXAMPLES)
    specs = named_players(args.players)
    if args.out is not None and args.out.exists():
        raise ConfigError(f"{args.out} exists; name another file")
    episodes = asyncio.run(played(args, specs))
    games = [game_of(episode) for episode in episodes if episode.error is None]
    failed = [episode for episode in episodes if episode.error is not None]
    console = screen()
    if games:
        console.print(ratings_table(bradley_terry(games), games))
    for episode in failed:
        console.print(f"game {episode.index}: {episode.error}", style="red", markup=False)
    return 1 if failed else 0


def named_players(words: tuple[str, ...]) -> dict[str, str]:
    """("random", "mine=runs/x") -> {"random": "random", "mine": "runs/x"}."""
    pairs = [word.split("=", 1) if "=" in word else [word, word] for word in words]
    if len({name for name, _ in pairs}) < max(2, len(pairs)):
        raise ConfigError(f"name at least two players, each once; got {' '.join(words) or 'none'}")
    return dict(cast(list[tuple[str, str]], pairs))


async def played(args: TournamentArgs, specs: Mapping[str, str]) -> list[Episode]:
    """All games, behind a bar, each kept as it ends."""
    env_id = env_name(args.env_id)
    if env_id not in pettingzoo.aec_registry:
        raise ConfigError(f"{env_id} is no game for two; `ludic list` shows those that are")
    task = Task(
        env_id=env_id,
        kwargs=keyword_arguments(args.env_kwargs),
        seed=args.seed,
        sampling=Sampling(temperature=args.temperature, max_tokens=args.max_tokens),
        max_turns=args.max_turns,
    )
    pairings = Pairings(
        task=task,
        games=args.games,
        concurrency=args.concurrency,
        timeout_s=args.timeout_s,
    )
    total = args.games * len(specs) * (len(specs) - 1)
    async with opened(specs) as players:
        return await kept(round_robin(players, pairings), args.out, total)


@asynccontextmanager
async def opened(specs: Mapping[str, str]) -> AsyncIterator[Mapping[str, MakePlayer]]:
    """What builds every player's policy, for as long as the context lasts."""
    async with AsyncExitStack() as stack:
        # The reference policies look into either kind of env; all others look into none.
        yield {
            name: cast(MakePlayer, await stack.enter_async_context(open_policy(spec)))
            for name, spec in specs.items()
        }


async def kept(episodes: AsyncIterator[Episode], out: Path | None, total: int) -> list[Episode]:
    """The games, each counted on the bar and written to the file as it ends."""
    ended = []
    keep = nullcontext(lambda episode: None) if out is None else open_records(out)
    with keep as record, Progress(*BAR, console=Console(stderr=True)) as bar:
        row = bar.add_task("games", total=total)
        async for episode in episodes:
            record(episode)
            ended.append(episode)
            bar.advance(row)
    return ended


def ratings_table(ratings: tuple[Rating, ...], games: list[PlayedGame]) -> Table:
    """One line per player, the strongest first, and what it got from each other."""
    table = Table(title=Text("ratings"), title_justify="left", box=None, padding=(0, 1, 0, 0))
    names = [rating.player for rating in ratings]
    for heading in ("player", "Elo", "95%", "points", "games", *(f"v {name}" for name in names)):
        table.add_column(Text(heading), justify="left" if heading == "player" else "right")
    for rating in ratings:
        low, high = rating.interval
        words = [
            rating.player,
            f"{rating.elo:+.0f}",
            f"[{low:+.0f}, {high:+.0f}]",
            f"{rating.points:g}",
            str(rating.games),
            *(points_from(games, rating.player, name) for name in names),
        ]
        table.add_row(*map(Text, words))
    return table


def points_from(games: list[PlayedGame], player: str, other: str) -> str:
    """The points that one player took from the other; "" from itself."""
    if player == other:
        return ""
    won = [game.result for game in games if game[:2] == (player, other)]
    lost = [game.result for game in games if game[:2] == (other, player)]
    return f"{sum(won) + len(lost) - sum(lost):g}/{len(won) + len(lost)}"
