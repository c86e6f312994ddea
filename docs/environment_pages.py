"""Pages of the environment reference, made from the catalogue and from the environments."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from itertools import count
from textwrap import indent

import gymnasium as gym
from trained_runs import training_section

import ludic_gym as lg
from envs_registry.catalog import ADAPTERS, CATALOG, EnvEntry
from envs_registry.errata import ERRATA
from envs_registry.scores import CARDS
from envs_registry.speeds import SPEEDS
from envs_registry.starts import STARTS
from ludic_gym.commands.list import source_of

FOLDER = "reference/environments/"
SEED = 0
# A transcript has this many of the first turns, and the last one.
FIRST_TURNS = 5
SEPARATOR = "\n\n"

INDEX = """\
# Environments

```python
import gymnasium as gym
import ludic_gym

env = gym.make("ludic/Mastermind-v0")
observation, info = env.reset(seed=0)
```

Columns: success rates with default arguments. "Random" plays random legal actions (random texts if
any text is legal), "oracle" is the environment's own, "empty" replies with nothing, and "hack" is
the best of some thirty replies that are fixed before the task is read. The pages have intervals.
Some oracles are below 1, because cards, seats and lucky opponents decide a part of the games.
"ludic-small" is the [small chat model](../../guides/small-models.md) at temperature 0, in 20
episodes of at most 50 turns and 96 tokens a reply. Its context holds 2,048 tokens: an episode whose
dialog does not fit has failed, and the pages have the number of such episodes. "Speed" is the
number of steps of random play per CPU-second, as a multiple of Tic-Tac-Toe's, which has some
hundred thousand; it is missing where other processes do most of the work.

`ludic bench SUITE` plays all environments of a suite. See also
[published benchmarks](published.md) and [environments of other packages](other-packages.md).
"""
COLUMNS = """\
| id | description | views | random | oracle | empty | hack | ludic-small | speed |
|---|---|---|---:|---:|---:|---:|---:|---:|
"""
PROCEDURAL_SPLITS = """\
## Splits

| `split` | tasks |
|---|---|
| `"all"` | all, the default |
| `"train"` | four in five, by a hash of the task |
| `"test"` | the others, which no seed gives in `"train"` |
"""
OTHER_PACKAGES = """\
# Environments of other packages

See [Datasets and adapters](../../guides/datasets-and-adapters.md#environments-of-other-packages).
"""

ERRATA_TABLE = """\
## Errata

Known faults of tasks, by the version of the package in which they were seen.

| id | version | date | fault | done |
|---|---|---|---|---|"""


def file_name(entry: EnvEntry) -> str:
    """Name of the environment's page: "TicTacToe.md" for "ludic/TicTacToe-v0"."""
    return entry.id.removeprefix("ludic/").removesuffix("-v0") + ".md"


def titles() -> list[tuple[str, str]]:
    """Title and path of every page of an environment, in the catalogue's order."""
    return [(entry.title, FOLDER + file_name(entry)) for entry in CATALOG]


def pages() -> Iterator[tuple[str, str]]:
    """Path and text of every page of this part of the reference."""
    yield FOLDER + "index.md", index()
    for entry in CATALOG:
        yield FOLDER + file_name(entry), environment_page(entry)
    yield FOLDER + "other-packages.md", other_packages()


def index() -> str:
    """One table per suite; each environment is in the table of its first suite."""
    suites = dict.fromkeys(entry.suites[0] for entry in CATALOG)
    return "\n".join([INDEX, *map(_suite, suites)])


def _suite(name: str) -> str:
    rows = "".join(_row(entry) for entry in CATALOG if entry.suites[0] == name)
    return f"## {name}\n\n{COLUMNS}{rows}"


def _row(entry: EnvEntry) -> str:
    others = (_rate(entry, player) for player in ("empty", "hack", "ludic-small"))
    rates = (f"{entry.random_success:.3f}", f"{entry.oracle_success:.3f}", *others)
    scores = " | ".join(rates)
    about = f"{entry.description} | {', '.join(views(entry))} | {scores}"
    return f"| [`{entry.id}`]({file_name(entry)}) | {about} | {SPEEDS.get(entry.id, '')} |\n"


def _rate(entry: EnvEntry, player: str) -> str:
    """Success rate of a player; "" if it was not measured."""
    found = CARDS[entry.id].scores if entry.id in CARDS else {}
    wins, trials = found.get(player, (0, 0))
    return f"{wins / trials:.3f}" if trials else ""


def views(entry: EnvEntry) -> Iterator[str]:
    """Names of the registries that have the environment."""
    yield "Gymnasium"
    if entry.aec:
        yield "AEC"
    if entry.parallel:
        yield "Parallel"


def environment_page(entry: EnvEntry) -> str:
    """Description, scores, prompt, transcript, rules with arguments, splits, training, views."""
    parts = [
        f"# {entry.title}\n\n{entry.description}\n",
        f'```python\ngym.make("{entry.id}")\n```\n',
        _facts(entry),
        _scores(entry),
        _example(entry),
        f"## Rules and arguments\n\n{_class(entry.gym)}",
        _splits(entry),
        training_section(entry.id),
        _pettingzoo(entry),
    ]
    return "\n".join(part for part in parts if part)


def _facts(entry: EnvEntry) -> str:
    speed = SPEEDS.get(entry.id)
    argument, values = entry.levels
    levels = f"`{argument}` = " + ", ".join(f"`{value!r}`" for value in values)
    facts = {
        "Suites": ", ".join(f"`{suite}`" for suite in entry.suites),
        "Tags": ", ".join(entry.tags),
        "Success of random play": f"{entry.random_success:.3f}",
        "Success of the oracle": f"{entry.oracle_success:.3f}",
        'Levels, from easy to hard (`level="easy"`, `"medium"`, `"hard"` or 1, 2, ...)': (
            levels if values else ""
        ),
        "Reason for no levels": entry.no_levels,
        "Reason for no splits": entry.no_splits,
        "Source and licence of the tasks": source_of(entry),
        "Different starts, of the seeds tried at each level": _starts(entry),
        "Reason for few starts": entry.few_starts,
        "Speed, as a multiple of Tic-Tac-Toe's": "" if speed is None else f"{speed}",
    }
    return "".join(f"- {name}: {value}\n" for name, value in facts.items() if value)


def _scores(entry: EnvEntry) -> str:
    """Table of the players' scores, and the lengths of episodes."""
    card = CARDS[entry.id]
    rows = []
    for player, (wins, trials) in card.scores.items():
        low, high = lg.wilson_interval(wins, trials)
        rows.append(f"| {player} | {wins / trials:.3f} | {low:.3f} to {high:.3f} | {trials} |\n")
    head = "| player | success | 95% interval | episodes |\n|---|---:|---:|---:|\n"
    read, written = card.characters
    notes = [
        f"`hack` replies `{card.hack}`.",
        f"The oracle reads {read:,} and writes {written:,} characters per episode.",
        *(f"{model}: {p:,} + {r:,} tokens per episode." for model, (p, r) in card.tokens.items()),
        *(
            f"{model}: the dialog did not fit into its context in {failed} of "
            f"{card.scores[model][1]} episodes."
            for model, failed in card.outgrown.items()
            if failed
        ),
    ]
    return f"## Scores\n\n{head}{''.join(rows)}\n{' '.join(notes)}\n"


def _starts(entry: EnvEntry) -> str:
    counts = STARTS.get(entry.id, {}).values()
    return ", ".join(f"{found:,} of {seeds:,}" for seeds, _, found in counts)


def _example(entry: EnvEntry) -> str:
    """System prompt and a transcript of the oracle."""
    env: lg.Env = gym.make(entry.id)
    try:
        first, info = env.reset(seed=SEED)
        turns = list(_turns(env, first))
    except lg.NoSandbox:
        return "## Example\n\nThe machine that built this page has no sandbox to run an episode.\n"
    finally:
        env.close()
    left_out = len(turns) - FIRST_TURNS - 2
    if left_out > 0:
        turns[FIRST_TURNS:-2] = [f"... {left_out} further turns ..."]
    prompt = f"## System prompt\n\n{_fenced(info['system_prompt'])}"
    about = f"## Example\n\nThe oracle, with seed {SEED}. Actions are marked with `>`.\n\n"
    return f"{prompt}\n{about}{_fenced(SEPARATOR.join(turns))}"


def _turns(env: lg.Env, observation: str) -> Iterator[str]:
    for _ in count():
        action = env.unwrapped.oracle_action()
        seen = f"{observation}\n{indent(action, '> ')}"
        observation, reward, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            last = f"(reward {reward:.3g}, success {info['success']})"
            yield seen
            yield f"{observation}\n{last}".lstrip()
            return
        yield seen


def _fenced(text: str) -> str:
    """The text as a block in which no character is markup."""
    fence = "`" * 4
    while fence in text:
        fence += "`"
    return f"{fence}text\n{text}\n{fence}\n"


def _class(entry_point: str) -> str:
    path = entry_point.replace(":", ".")
    return (
        f"::: {path}\n    options:\n      heading_level: 3\n      members: false\n"
        "      show_bases: true\n"
    )


def _splits(entry: EnvEntry) -> str:
    module, _, name = entry.gym.partition(":")
    cls = getattr(import_module(module), name)
    if "split" not in inspect.signature(cls).parameters:
        return ""
    if "procedural" in entry.tags:
        return PROCEDURAL_SPLITS
    env: lg.Env = gym.make(entry.id)
    if env.unwrapped.num_rows is None:
        # Tasks that are drawn have no rows; the class says what their splits are.
        return ""
    rows = [f"| none | the bundled sample, {env.unwrapped.num_rows} rows |"]
    rows += [f'| `"{split}"` | {origin} |' for split, origin in _origins(cls)]
    table = "\n".join(["| `split` | rows |", "|---|---|", *rows])
    return f"## Splits\n\n{table}\n| any, with `data=` | a file, a folder or a hub id |\n"


def _origins(cls: type[lg.DatasetEnv]) -> Iterator[tuple[str, str]]:
    """The splits that come from the hub, each with its dataset."""
    for split in sorted(cls.hub_ids, reverse=True):
        data = lg.hub_data(cls.hub_ids[split], split=split)
        config = f", config `{data.config}`" if data.config else ""
        yield split, f"split `{data.split}` of `{data.id}`{config}"


def _pettingzoo(entry: EnvEntry) -> str:
    if not entry.aec:
        return ""
    calls = [f'pettingzoo.make("aec", "{entry.id}")']
    if entry.parallel:
        calls.append(f'pettingzoo.make("parallel", "{entry.id}")')
    code = "\n".join(["```python", *calls, "```"])
    return f"## PettingZoo\n\n{code}\n\n{_class(entry.aec)}"


def other_packages() -> str:
    """Ids by package, and the adapter classes."""
    packages = dict.fromkeys((entry.package, entry.extra) for entry in ADAPTERS)
    parts = [OTHER_PACKAGES]
    for package, extra in packages:
        entries = [entry for entry in ADAPTERS if entry.package == package]
        points = dict.fromkeys(p for e in entries for p in (e.gym, e.aec) if p)
        ids = ", ".join(f"`{entry.id}`" for entry in entries)
        title = "PettingZoo's boards" if package == "pygame-ce" else package
        parts += [f"## {title}\n\nExtra `{extra}`.\n", *map(_class, points), f"{ids}\n"]
    return "\n".join([*parts, ERRATA_TABLE, *map(_erratum, ERRATA), ""])


def _erratum(env_id: str) -> str:
    one = ERRATA[env_id]
    done = f"{one.action}: {one.mend}" if one.mend else one.action
    return f"| `{env_id}` | {one.package} {one.version} | {one.date} | {one.fault} | {done} |"
