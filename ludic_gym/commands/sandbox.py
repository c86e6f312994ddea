"""`ludic sandbox`: test the sandbox on this machine.

    $ ludic sandbox doctor
    network     holds
    filesystem  holds
    ...

    Memory is limited by control groups (version 2) in /sys/fs/cgroup/user.slice

The programs that try to break out are those of `ludic_gym.sandbox.probes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from ludic_gym.commands.arguments import option, parse, print_json, print_table
from ludic_gym.sandbox.choice import open_sandbox, why_not
from ludic_gym.sandbox.loop import run_blocking
from ludic_gym.sandbox.memory import place
from ludic_gym.sandbox.probes import find_breaches


@dataclass(frozen=True, kw_only=True)
class SandboxArgs:
    """Test the sandbox: doctor runs programs that try to break out, and prints the results.

    Exits with 1 if the sandbox is missing or breaks a guarantee.
    """

    action: Annotated[tyro.conf.Positional[Literal["doctor"]], option("doctor")]
    """The action."""
    json: bool = False
    """Print JSON in place of the table."""


def main(argv: list[str]) -> int:
    """Run `ludic sandbox`; 1 if the sandbox does not work, or breaks a guarantee."""
    args = parse(SandboxArgs, argv, command="sandbox", examples="ludic sandbox doctor")
    reason = why_not()
    breaches = {} if reason else run_blocking(examine())
    if args.json:
        print_json({"why_not": reason, "broken": breaches})
    elif reason:
        print(f"no sandbox works here: {reason}")
    else:
        states = [(name, "BROKEN" if breach else "holds") for name, breach in breaches.items()]
        print_table(("guarantee", "state"), states)
        print("", *(f"{name}: {breach}" for name, breach in breaches.items() if breach), sep="\n")
        print(memory_remark())
    return 1 if reason or any(breaches.values()) else 0


async def examine() -> dict[str, str]:
    """The breach of each guarantee, "" if it holds; this takes some seconds."""
    # No processes in reserve: they would be started for a few programs only.
    sandbox = open_sandbox(warm=0)
    try:
        return await find_breaches(sandbox)
    finally:
        await sandbox.close()


def memory_remark() -> str:
    """The mechanism that limits the memory of a whole program."""
    where = place()
    if where.why_not:
        return (
            f"Memory is measured ten times a second: no control group can be made ({where.why_not})"
        )
    return f"Memory is limited by control groups (version {where.version}) in {where.folder}"
