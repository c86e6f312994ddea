"""Arguments of `ludic bench`, and what follows from them: plans, requests and sampling."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from envs_registry.catalog import SUITES
from ludic_gym.bench.evaluation import EnvPlan, named_envs, rescoring_plans
from ludic_gym.bench.folder import ludic_version, read_request
from ludic_gym.bench.policies import is_provided
from ludic_gym.bench.provenance import provenance
from ludic_gym.bench.result import Price
from ludic_gym.bench.runner import MAX_TURNS, bench_tasks
from ludic_gym.commands.arguments import ChatArg, env_name, keyword_arguments, option
from ludic_gym.errors import ConfigError
from ludic_gym.limits import RequestLimits
from ludic_gym.types import Sampling

# Arguments that stand in bench.json under their own names.
SETTINGS = ("agent", "param", "extra_body", "chat_arg", "seed", "samples", "max_turns", "attempts")


SAMPLING = ("temperature", "top_p", "max_tokens", "max_length")


@dataclass(frozen=True, kw_only=True)
class BenchArgs:
    """Play environments with a policy and print the results.

    With --out, the same command continues where it was stopped.
    """

    ids: Annotated[tyro.conf.Positional[tuple[str, ...]], option("ID|SUITE|BENCHMARK ...")] = ()
    """Environment ids, suites, or published benchmarks such as mmlu-pro, as in `ludic list`."""
    policy: Annotated[
        str | None,
        option(
            "POLICY",
            "oracle, random (the default), the http(s) address of an OpenAI-style server, a run "
            "folder, ludic-small (made by `ludic model`), or module:function, which is called "
            "with the env and returns a policy.",
        ),
    ] = None
    model: Annotated[
        tuple[str, ...],
        tyro.conf.UseAppendAction,
        option(
            "NAME",
            "The server's name for its model; by default the one it serves. Without --policy, "
            "openai/NAME, anthropic/NAME, openrouter/NAME, vllm/NAME or ollama/NAME is a model "
            "of that server, and hf/NAME or hf/FOLDER one that this process loads. Repeated, "
            "the models play the same tasks, and are compared with the first.",
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
    limits: Annotated[RequestLimits, tyro.conf.arg(name="")] = field(default_factory=RequestLimits)
    episodes: Annotated[int | None, option("N")] = None
    """Tasks per env; by default every row once, or 100 for an env without rows."""
    samples: int = 1
    """Episodes per task, which share its env seed; from 2 on, pass@k and pass^k are printed."""
    data: Annotated[str | None, option("PATH")] = None
    """Rows of data sets: "sample", a file (.jsonl, .parquet, .json, .csv), a folder or a hub id."""
    env_kwargs: Annotated[tuple[str, ...], option("KEY=VALUE ...")] = ()
    """Arguments of the env."""
    seed: int = 0
    """Task i plays and samples with this seed + i."""
    concurrency: int = 64
    """Episodes in flight."""
    timeout_s: Annotated[float | None, option("SECONDS")] = None
    """Seconds after which an episode counts as failed; by default never."""
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
    temperature: float = 1.0
    """Sampling temperature of a model; 0 is greedy."""
    top_p: float = 1.0
    """Probability mass of nucleus sampling."""
    max_tokens: int = 256
    """Limit of tokens per reply."""
    max_length: Annotated[int | None, option("N")] = None
    """Limit of tokens per prompt and reply together; by default that of the model or server."""
    out: Annotated[Path | None, option("DIR")] = None
    """Folder for the transcripts: one jsonl file per env, one line per episode."""
    rescore: Annotated[
        Path | None,
        option(
            "DIR",
            "Repeat the decisions of this earlier run, without a model, in the current envs and "
            "with these --env-kwargs.",
        ),
    ] = None
    repeat: Annotated[
        str | None,
        option(
            "FILE:INDEX",
            "Play one recorded episode once more, with its policy and model unless others are "
            "given, and print both results.",
        ),
    ] = None
    price: Annotated[tuple[float, float] | None, option("IN OUT")] = None
    """Cost of a million tokens of prompts and of completions, for the bar and the results."""
    cached_price: Annotated[
        float | None,
        option(
            "COST",
            "Cost of a million tokens of prompts that the server had in its cache; by default "
            "that of --price.",
        ),
    ] = None
    parquet: bool = False
    """Write DIR/episodes.parquet too, a row per episode, at the end."""
    config: Annotated[Path | None, option("FILE")] = None
    """A TOML file with these options, and with a table [[runs]] for each policy to compare."""
    json: bool = False
    """Print JSON in place of the table."""
    fail_under: Annotated[float | None, option("RATE")] = None
    """Exit with 1 if an env's success rate is below this."""


def policy_name(args: BenchArgs) -> str:
    """Name of the policy in tables and records; that of the earlier run when it is rescored."""
    if args.rescore is None and args.agent is not None:
        return f"{args.agent} ({policy_spec(args)})"
    if args.rescore is None:
        return policy_spec(args)
    return str(read_request(args.rescore)["policy"])


def price_of(args: BenchArgs) -> Price | None:
    """Price of tokens. Raises ConfigError for a negative one, and for that of cached ones alone."""
    if min((*(args.price or ()), args.cached_price or 0.0)) < 0:
        raise ConfigError(f"prices are 0 or more, got {args.price} and {args.cached_price}")
    if args.price is None:
        if args.cached_price is not None:
            raise ConfigError(f"--cached-price {args.cached_price:g} needs --price IN OUT")
        return None
    return Price(*args.price, args.cached_price)


def policy_spec(args: BenchArgs) -> str:
    """The policy, or a model of its own server or of this process."""
    model = model_of(args)
    if args.policy is None and model is not None and is_provided(model):
        return model
    return args.policy or "random"


def model_of(args: BenchArgs) -> str | None:
    """The one model, None for the only one of a server. Raises ConfigError for several."""
    if len(args.model) > 1:
        raise ConfigError(f"--rescore and --repeat have one model, got {' '.join(args.model)}")
    return args.model[0] if args.model else None


def request(args: BenchArgs, plans: Mapping[str, EnvPlan]) -> Mapping[str, Any]:
    """All settings that determine the episodes, as the JSON object of the folder's bench.json.

    plans: the plan of each env, by id.
    """
    return {
        "model": model_of(args),
        **{name: getattr(args, name) for name in SETTINGS},
        "ludic": ludic_version(),
        "policy": policy_name(args),
        "rescored": None if args.rescore is None else str(args.rescore),
        "envs": {
            name: {
                "kwargs": plan.kwargs,
                "episodes": plan.count,
                "environment": plan.origin.environment,
                "data": plan.origin.data,
            }
            for name, plan in plans.items()
        },
        # Not concurrency, prices or time limits: they may change when the run continues.
        "sampling": {key: getattr(args, key) for key in SAMPLING},
    }


def plans_of(args: BenchArgs) -> Mapping[str, EnvPlan]:
    """The plan of each env, by id.

    Raises ConfigError for arguments that cannot work, and Gymnasium's errors for unknown ids.
    """
    given = dict(keyword_arguments(args.env_kwargs))
    if args.rescore is not None:
        return rescoring_plans(args.rescore, given)
    # Those that are named themselves too get the rows in any case.
    of_suites = {env_id for name in args.ids for env_id in SUITES.get(name, ())} - {*args.ids}
    plans = {}
    for env_id, suggested in named_envs(args.ids).items():
        kwargs = given
        # Of a suite, only the data sets, which have a split there, take rows.
        if args.data is not None and (env_id not in of_suites or "split" in suggested):
            # A file has no split, and of a folder or a hub id the test split is the default.
            suggested = {name: value for name, value in suggested.items() if name != "split"}
            kwargs = {**given, "data": args.data}
        # Tasks keep the module's name, so that their records can be played again anywhere.
        env_name(env_id)
        tasks = bench_tasks(
            env_id,
            # The user's last, so that --env-kwargs replaces the split that a suite names.
            kwargs={**suggested, **kwargs},
            episodes=args.episodes,
            seed=args.seed,
            sampling=sampling_of(args),
            max_turns=args.max_turns,
            attempts=args.attempts,
            samples=args.samples,
        )
        plans[env_id] = EnvPlan(
            jobs=tasks,
            count=len(tasks),
            kwargs={**suggested, **kwargs},
            origin=provenance(env_id, {**suggested, **kwargs}),
        )
    return plans


def params_of(args: BenchArgs) -> dict[str, Any]:
    """The fields of `--param`, None for one that is left out."""
    given = keyword_arguments(args.param)
    # None for a field that is left out; a server's own null has no use here.
    return {name: None if value == "none" else value for name, value in given.items()}


def extra_body_of(args: BenchArgs) -> dict[str, Any]:
    """The object of `--extra-body`. Raises ConfigError for any other text."""
    try:
        value = json.loads(args.extra_body or "{}")
    except json.JSONDecodeError as error:
        raise ConfigError(f"--extra-body is no JSON ({error}): {args.extra_body!r}") from error
    if not isinstance(value, dict):
        raise ConfigError(f"--extra-body is a JSON object, got {args.extra_body!r}")
    return value


def sampling_of(args: BenchArgs) -> Sampling:
    """The sampling parameters of all episodes."""
    return Sampling(**{key: getattr(args, key) for key in SAMPLING})
