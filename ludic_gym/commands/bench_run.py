"""Play of `ludic bench` with one policy, in all its environments."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial

from ludic_gym.bench.evaluation import EnvPlan, Play, play_env
from ludic_gym.bench.folder import open_folder, write_parquet, write_results
from ludic_gym.bench.policies import open_agent, open_policy
from ludic_gym.bench.report import percent, spent_text
from ludic_gym.bench.result import Price, Tally
from ludic_gym.commands.arguments import keyword_arguments, readable_env_errors
from ludic_gym.commands.bench_args import (
    BenchArgs,
    extra_body_of,
    model_of,
    params_of,
    plans_of,
    policy_name,
    policy_spec,
    price_of,
    request,
    sampling_of,
)
from ludic_gym.policies.chat import ServedPolicy
from ludic_gym.policies.reference import RandomPolicy
from ludic_gym.types import MakePolicy


async def run_all(args: BenchArgs, tallies: dict[str, Tally]) -> None:
    """Play one env after the other; each fills its tally as its episodes end.

    tallies: filled here and not returned, so that Ctrl-C leaves the finished episodes to the
        caller.
    """
    with readable_env_errors():
        plans = plans_of(args)
    # Every job of a rescoring brings its own policy.
    if args.agent is None:
        spec, model = policy_spec(args), model_of(args)
        opened = open_policy(
            spec,
            model,
            params=params_of(args),
            extra_body=extra_body_of(args),
            limits=args.limits,
            chat_args=keyword_arguments(args.chat_arg),
        )
    else:
        opened = open_agent(policy_spec(args), args.agent)
    async with nullcontext(RandomPolicy) if args.rescore else opened as make_policy:
        served = None
        if isinstance(make_policy, ServedPolicy):
            served = await make_policy.probe(sampling_of(args))
            for name, new in make_policy.client.renamed.items():
                change = "it is left out" if new is None else f"it is sent as {new!r}"
                print(f"the server refuses {name!r}: {change}", file=sys.stderr)
        play = Play(
            make_policy=make_policy,
            policy=policy_name(args),
            folder=args.out,
            concurrency=args.concurrency,
            timeout_s=args.timeout_s,
            price=price_of(args),
            model=None if served is None else served.model,
        )
        await play_all(args, plans, play, tallies)
    if args.out is not None and args.parquet:
        write_parquet(args.out)


async def play_all(
    args: BenchArgs, plans: Mapping[str, EnvPlan], play: Play, tallies: dict[str, Tally]
) -> None:
    """Play the plans into the folder of `--out`, if there is one, and write its results."""
    # Claimed before the first episode: a second process must fail before it pays for tokens.
    renamed = play.make_policy.client.renamed if isinstance(play.make_policy, ServedPolicy) else {}
    wanted = {**request(args, plans), "served": play.model, "renamed": renamed}
    with nullcontext() if args.out is None else open_folder(args.out, wanted):
        for env_id, plan in plans.items():
            tally = tallies.setdefault(env_id, Tally())
            note = partial(bar_note, tally, play.make_policy, play.price)
            await play_env(env_id, plan, play, tally=tally, note=note)
            # The other envs have the same server.
            if tally.stopped:
                break
        # Inside the claim: no other process may change the folder before its results are written.
        if args.out is not None:
            write_results(args.out, {name: tally.result() for name, tally in tallies.items()})


def bar_note(tally: Tally, make_policy: MakePolicy, price: Price | None) -> str:
    """The text behind the bar: success rate, and the tokens of a policy behind a server."""
    spent = spent_text(make_policy.usage, price) if isinstance(make_policy, ServedPolicy) else ""
    return f"success {percent(tally.success_rate)} {spent}"
