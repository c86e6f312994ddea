"""Arguments of `ludic bench`, and what follows from them: runs, plans and requests."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from envs_registry.catalog import SUITES
from ludic_gym.bench.evaluation import EnvPlan, env_plan, named_envs, published_limits
from ludic_gym.bench.folder import ludic_version, read_request, samples_of
from ludic_gym.bench.result import Price
from ludic_gym.bench.runner import MAX_TURNS, bench_tasks
from ludic_gym.commands.arguments import ChatArg, HarnessName, env_name, keyword_arguments, option
from ludic_gym.errors import ConfigError
from ludic_gym.limits import RequestLimits
from ludic_gym.types import Sampling

# Arguments that stand in bench.json under their own names, by their object.
PLAYER = ("agent", "param", "extra_body", "chat_arg", "harness")
TASKS = ("seed", "max_turns", "attempts")
SAMPLING = ("temperature", "top_p", "max_tokens", "max_length")
DEFAULTS = {name: getattr(Sampling(), name) for name in SAMPLING}

COMMON = (
    *(
        "ids",
        "policy",
        "model",
        "harness",
        "tournament",
        "like",
        "episodes",
        "samples",
        "data",
        "field",
        "env_kwargs",
    ),
    *("seed", "max_turns", "temperature", "max_tokens", "concurrency", "timeout_s", "out", "price"),
    *("json", "fail_under"),
)
"""The options of `--help`; the others are in `--help-all`."""
FOREIGN = {
    # inspect
    "--limit": "--episodes N",
    "--epochs": "--samples N",
    "--max-connections": "--concurrency N",
    "--max-samples": "--concurrency N",
    "--model-base-url": "--policy URL",
    "--log-dir": "--out DIR",
    "--message-limit": "--max-turns N",
    "--token-limit": "--max-length N",
    "--time-limit": "--timeout-s SECONDS",
    "--timeout": "--request-timeout SECONDS",
    "--max-retries": "--retries N",
    # lm-eval
    "--tasks": "the names alone, such as ludic bench mmlu-pro ludic/GSM8K-v0",
    "--num-fewshot": "--env-kwargs, if the environment has examples; none are added to its prompt",
    "--batch-size": "--concurrency N",
    "--model-args": "--model hf/NAME, or --policy URL",
    "--gen-kwargs": "--temperature, --top-p and --max-tokens",
    "--output-path": "--out DIR",
    "--log-samples": "--out DIR, which has every episode",
    # verifiers
    "-n": "--episodes N",
    "--num-examples": "--episodes N",
    "-r": "--samples N",
    "--rollouts-per-example": "--samples N",
    "-m": "--model NAME",
    "-b": "--policy URL",
    "--api-base-url": "--policy URL",
    "-a": "--env-kwargs KEY=VALUE",
    "--env-args": "--env-kwargs KEY=VALUE",
    "-c": "--concurrency N",
    "--max-concurrent": "--concurrency N",
    "-s": "--out DIR",
    "--save-results": "--out DIR",
    "--sampling-args": "--temperature, --top-p and --max-tokens, or --extra-body JSON",
    # Hugging Face
    "--max-new-tokens": "--max-tokens N",
    "--output-dir": "--out DIR",
    "--dataset": "--data PATH",
}
"""Options of other libraries, and what is written here."""


@dataclass(frozen=True, kw_only=True)
class Player:
    """Options about what plays."""

    policy: Annotated[
        tuple[str, ...],
        tyro.conf.UseAppendAction,
        option(
            "POLICY",
            "oracle, random, the http(s) address of an OpenAI-style server, openai/NAME or "
            "another vendor's, hf/NAME, a run folder, ludic-small (made by `ludic model`), or "
            "module:function, which is called with the env and returns a policy. Repeated, the "
            "policies play the same tasks, and are compared with the first.",
        ),
    ] = ()
    model: Annotated[
        tuple[str, ...],
        tyro.conf.UseAppendAction,
        option(
            "NAME",
            "The name of the model at the address of --policy; by default the one it serves. "
            "Without --policy, the same as --policy: openai/NAME, anthropic/NAME, google/NAME, "
            "openrouter/NAME, vllm/NAME, ollama/NAME, hf/NAME and so on. May be repeated.",
        ),
    ] = ()
    agent: Annotated[
        str | None,
        option(
            "COMMAND",
            "A program that plays with the model of --policy: a command, or module:function; "
            "see the guide to agent programs.",
        ),
    ] = None
    param: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, option("NAME=VALUE")] = ()
    """Set a field of the server's requests, or leave it out by NAME=none; may be repeated."""
    extra_body: Annotated[str | None, option("JSON")] = None
    """A JSON object of further fields of the server's requests."""
    chat_arg: ChatArg = ()
    harness: HarnessName = None
    limits: Annotated[RequestLimits, tyro.conf.arg(name="")] = field(default_factory=RequestLimits)

    @property
    def spec(self) -> str:
        """The name of the player, as of `lg.model`. Raises ConfigError if none is given."""
        if not self.policy and not self.model:
            raise ConfigError(
                "name what plays: --policy random, --policy oracle, --policy http://HOST:PORT/v1, "
                "--policy RUN_FOLDER, or --model openai/NAME"
            )
        return (self.policy or self.model)[0]

    @property
    def model_name(self) -> str | None:
        """The name of the model at the address of --policy; None: the only one it has."""
        return self.model[0] if self.policy and self.model else None

    @property
    def name(self) -> str:
        """Name of the policy in tables and records."""
        return self.spec if self.agent is None else f"{self.agent} ({self.spec})"

    @property
    def params(self) -> dict[str, Any]:
        """The fields of `--param`, None for one that is left out."""
        pairs = keyword_arguments(self.param)
        # None for a field that is left out; a server's own null has no use here.
        return {name: None if value == "none" else value for name, value in pairs.items()}

    @property
    def extra_fields(self) -> dict[str, Any]:
        """The object of `--extra-body`. Raises ConfigError for any other text."""
        try:
            value = json.loads(self.extra_body or "{}")
        except json.JSONDecodeError as error:
            raise ConfigError(f"--extra-body is no JSON ({error}): {self.extra_body!r}") from error
        if not isinstance(value, dict):
            raise ConfigError(f"--extra-body is a JSON object, got {self.extra_body!r}")
        return value


@dataclass(frozen=True, kw_only=True)
class TaskArgs:
    """Options about what is played."""

    episodes: Annotated[
        int | None,
        option(
            "N",
            "Tasks per env; by default every row once, or 100 for an env without rows. In a "
            "tournament, games of each pair of policies from either seat, by default 20.",
        ),
    ] = None
    samples: Annotated[
        int | None,
        option(
            "N",
            "Episodes per task, which share its env seed, by default 1, or as published; from 2 "
            "on, pass@k and pass^k are printed.",
        ),
    ] = None
    data: Annotated[str | None, option("PATH")] = None
    """Rows of data sets: "sample", a file (.jsonl, .parquet, .json, .csv), a folder or a hub id."""
    field: Annotated[tuple[str, ...], option("NAME=PLACE ...")] = ()
    """Columns of the rows, such as question=prompt answer=reward_model.ground_truth."""
    env_kwargs: Annotated[tuple[str, ...], option("KEY=VALUE ...")] = ()
    """Arguments of the env."""
    seed: int = 0
    """Task i plays and samples with this seed + i."""
    max_turns: int = MAX_TURNS
    """Turns after which an episode is truncated."""
    attempts: Annotated[
        int | None,
        option(
            "N",
            "Replies without an action after which an episode fails; by default 1 in single-turn "
            "envs, no limit in others.",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class SamplingArgs:
    """Options about the replies of models."""

    temperature: Annotated[float | None, option("FLOAT")] = None
    """Sampling temperature of a model; 0 is greedy. By default 1, or as published."""
    top_p: Annotated[float | None, option("FLOAT")] = None
    """Probability mass of nucleus sampling. By default 1, or as published."""
    max_tokens: Annotated[int | None, option("N")] = None
    """Limit of tokens per reply. By default 256, or as published."""
    max_length: Annotated[int | None, option("N")] = None
    """Limit of tokens per prompt and reply together; by default that of the model or server."""


@dataclass(frozen=True, kw_only=True)
class RunArgs:
    """Options about the run and its results."""

    concurrency: int = 64
    """Episodes in flight."""
    timeout_s: Annotated[float | None, option("SECONDS")] = None
    """Seconds after which an episode counts as failed; by default never."""
    out: Annotated[Path | None, option("DIR")] = None
    """Folder for the transcripts: one jsonl file per env, one line per episode."""
    price: Annotated[tuple[float, ...], option("IN OUT [CACHED]")] = ()
    """Cost of a million tokens of prompts, of completions, and of prompts in the server's cache."""
    json: bool = False
    """Print JSON in place of the table."""
    fail_under: Annotated[float | None, option("RATE")] = None
    """Exit with 1 if an env's success rate is below this."""

    def __post_init__(self) -> None:
        if self.fail_under is not None and not 0 <= self.fail_under <= 1:
            raise ConfigError(f"--fail-under is a rate from 0 to 1, got {self.fail_under:g}")
        if self.price and len(self.price) not in (2, 3):
            raise ConfigError(f"--price is IN OUT or IN OUT CACHED, got {self.price}")
        if min(self.price, default=0) < 0:
            raise ConfigError(f"prices are 0 or more, got {self.price}")

    @property
    def costs(self) -> Price | None:
        """The price of tokens; None if it is not given."""
        return Price(*self.price) if self.price else None


@dataclass(frozen=True, kw_only=True)
class BenchArgs:
    """Play environments with policies and print the results.

    With --out, the same command continues where it was stopped.
    """

    ids: Annotated[tyro.conf.Positional[tuple[str, ...]], option("ID|SUITE|BENCHMARK ...")] = ()
    """Environment ids, suites, or published benchmarks such as mmlu-pro, as in `ludic list`."""
    player: Annotated[Player, tyro.conf.arg(name="")] = field(default_factory=Player)
    tournament: bool = False
    """Let the policies play a two-player game against each other, and rate them on Elo's scale."""
    like: Annotated[Path | None, option("DIR")] = None
    """Play what this earlier run played, with its settings, and its policy unless one is given."""
    tasks: Annotated[TaskArgs, tyro.conf.arg(name="")] = field(default_factory=TaskArgs)
    sampling: Annotated[SamplingArgs, tyro.conf.arg(name="")] = field(default_factory=SamplingArgs)
    run: Annotated[RunArgs, tyro.conf.arg(name="")] = field(default_factory=RunArgs)

    @property
    def policy(self) -> str:
        """Name of the policy in tables and records."""
        return self.player.name


def settings_like(folder: Path, player: Player) -> BenchArgs:
    """The arguments of the run in a folder, as defaults of those of another one.

    player: as on the command line; the run's own is taken if it names neither policy nor model.
    """
    request = read_request(folder)
    if not (player.policy or player.model):
        # Folders of earlier versions lack settings that came later.
        settings = {name: request[name] for name in PLAYER if name in request}
        spec, model, agent = request["policy"], request.get("model"), request.get("agent")
        spec = spec if agent is None else spec.removeprefix(f"{agent} (").removesuffix(")")
        settings |= {name: tuple(settings.get(name, ())) for name in ("param", "chat_arg")}
        player = replace(
            Player(**settings), policy=(spec,), model=() if model in (None, spec) else (model,)
        )
    else:
        player = Player()
    # Sampling and samples may be an environment's own: `limits_of` reads them.
    tasks = {name: request[name] for name in TASKS if name in request}
    return BenchArgs(player=player, tasks=TaskArgs(**tasks))


def limits_of(args: BenchArgs, env_id: str = "") -> dict[str, Any]:
    """Sampling parameters and "samples" of an env, or of those without their own.

    By the options, else those of the run that is played --like, of the published benchmark with
    their "source", or the defaults.
    """
    earlier = {} if args.like is None else read_request(args.like)
    limits = {**DEFAULTS, **earlier.get("sampling", {}), "samples": earlier.get("samples", 1)}
    if env_id in earlier.get("envs", ()):
        limits |= earlier["envs"][env_id].get("limits", {})
    elif (published := published_limits(args.ids).get(env_id)) is not None:
        limits |= asdict(published)
    options = {name: getattr(args.sampling, name) for name in SAMPLING}
    options["samples"] = args.tasks.samples
    chosen = {name: value for name, value in options.items() if value is not None}
    if any(limits[name] != value for name, value in chosen.items()):
        limits.pop("source", None)
    return limits | chosen


def runs_of(args: BenchArgs) -> dict[str, BenchArgs]:
    """The arguments of each policy's run by its name; of several, each has a folder of its own.

    Raises ConfigError for two of one name.
    """
    policies, models = args.player.policy, args.player.model
    if len(policies) > 1 and models:
        raise ConfigError(
            f"several policies and --model {' '.join(models)}: name each model as a --policy, such "
            "as openai/NAME"
        )
    if max(len(policies), len(models)) <= 1:
        return {args.player.spec: args}
    runs: dict[str, BenchArgs] = {}
    for name in policies if len(policies) > 1 else models:
        out = None if args.run.out is None else args.run.out / folder_name(name)
        player = replace(args.player, model=(name,))
        if len(policies) > 1:
            player = replace(args.player, policy=(name,))
        runs[name] = replace(args, player=player, run=replace(args.run, out=out))
    if len(set(map(folder_name, runs))) < max(len(policies), len(models)):
        raise ConfigError(f"two of the policies have one name: {' '.join(policies or models)}")
    return runs


def folder_name(name: str) -> str:
    """The name of a run's folder: other characters than letters, digits, "." and "_" are "-".

    >>> folder_name("openai/gpt 5"), folder_name("..")
    ('openai-gpt-5', '-')
    """
    plain = "".join(c if c.isalnum() or c in "._-" else "-" for c in name)
    # "." and ".." are other folders.
    return plain if plain.strip(".") else "-"


def request(args: BenchArgs, plans: Mapping[str, EnvPlan]) -> dict[str, Any]:
    """All settings that determine the episodes, as the JSON object of the folder's bench.json.

    plans: the plan of each env, by id.
    """
    of_run = limits_of(args)
    return {
        "model": args.player.model[0] if args.player.model else None,
        **{name: getattr(args.player, name) for name in PLAYER},
        **{name: getattr(args.tasks, name) for name in TASKS},
        "samples": of_run["samples"],
        "ludic": ludic_version(),
        "policy": args.policy,
        "envs": {
            name: {
                "kwargs": plan.kwargs,
                "episodes": len(plan.tasks),
                "data": plan.data,
                **({"limits": {n: plan.limits[n] for n in of_run}} if plan.limits else {}),
            }
            for name, plan in plans.items()
        },
        # Not concurrency, prices or time limits: they may change when the run continues.
        "sampling": {name: of_run[name] for name in SAMPLING},
    }


def plans_of(args: BenchArgs) -> dict[str, EnvPlan]:
    """The plan of each env, by id.

    Raises ConfigError for arguments that cannot work, and Gymnasium's errors for unknown ids.
    """
    arguments = dict(keyword_arguments(args.tasks.env_kwargs))
    if args.tasks.field:
        # Places are texts, and may hold what JSON would read as numbers.
        pairs = (pair.partition("=") for pair in args.tasks.field)
        arguments["fields"] = {name: place for name, _, place in pairs}
    earlier = {} if args.like is None else read_request(args.like)
    envs = earlier.get("envs", {})
    named = {name: env["kwargs"] for name, env in envs.items()} or named_envs(args.ids)
    # Those that are named themselves too get the rows in any case.
    of_suites = {env_id for name in args.ids for env_id in SUITES.get(name, ())} - {*args.ids}
    plans = {}
    for env_id, kwargs in named.items():
        # The user's last, so that --env-kwargs replaces the split that a suite names.
        kwargs = {**kwargs, **arguments}
        # Of a suite, only the data sets, which have a split there, take rows.
        if args.tasks.data is not None and (env_id not in of_suites or "split" in kwargs):
            # A file has no split, and of a folder or a hub id the test split is the default.
            if "split" not in arguments:
                kwargs.pop("split", None)
            kwargs["data"] = args.tasks.data
        # Tasks keep the module's name, so that their records can be played again anywhere.
        env_name(env_id)
        episodes = args.tasks.episodes
        if episodes is None and env_id in envs:
            episodes = envs[env_id]["episodes"] // samples_of(earlier, env_id)
        limits = limits_of(args, env_id)
        tasks = bench_tasks(
            env_id,
            kwargs=kwargs,
            episodes=episodes,
            seed=args.tasks.seed,
            sampling=Sampling(**{name: limits[name] for name in SAMPLING}),
            max_turns=args.tasks.max_turns,
            attempts=args.tasks.attempts,
            samples=limits["samples"],
        )
        own = limits if limits != limits_of(args) else {}
        plan = plans[env_id] = env_plan(env_id, kwargs, tasks, own)
        if env_id in envs and envs[env_id]["data"] != plan.data:
            print(f"{env_id}: data was {envs[env_id]['data']}, is {plan.data}", file=sys.stderr)
    return plans
