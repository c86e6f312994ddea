"""`ludic sandbox`: test the sandboxes on this machine.

    $ ludic sandbox doctor --only bubblewrap podman
    guarantee   bubblewrap  podman
    network     holds       -
    filesystem  holds       -
    ...

    podman does not work here: podman is not installed
    Memory is limited by control groups (version 2) in /sys/fs/cgroup/user.slice
    Environments use bubblewrap.

The programs that try to break out are those of `ludic_gym.sandbox.probes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Literal

import tyro

from ludic_gym.commands.arguments import option, parse, print_json, print_table
from ludic_gym.errors import ConfigError
from ludic_gym.sandbox.choice import BACKENDS, open_sandbox, why_not
from ludic_gym.sandbox.loop import run_blocking
from ludic_gym.sandbox.memory import place
from ludic_gym.sandbox.probes import find_breaches
from ludic_gym.sandbox.types import Guarantees

EXAMPLES = """\
ludic sandbox doctor
ludic sandbox doctor --only bubblewrap native"""
HOLDS, BROKEN, ABSENT = "holds", "BROKEN", "-"


@dataclass(frozen=True, kw_only=True)
class SandboxArgs:
    """Test sandboxes: doctor runs programs that try to break out, and prints the results.

    Exits with 1 if the sandbox that environments would use is missing or breaks a guarantee.
    """

    action: Annotated[tyro.conf.Positional[Literal["doctor"]], option("doctor")]
    """The action."""
    only: Annotated[tuple[str, ...], option("NAME ...")] = ()
    """Test only these sandboxes; by default all of them."""
    json: bool = False
    """Print JSON in place of the table."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Result for a sandbox: the reason why it does not work, or the breach of each guarantee.

    why_not: "" for a sandbox that works.
    broken: by the name of the guarantee, a description of the breach; "" if it holds.
    """

    why_not: str = ""
    broken: Mapping[str, str]

    @property
    def sound(self) -> bool:
        """True if it works and keeps all its guarantees."""
        return not self.why_not and not any(self.broken.values())


def main(argv: list[str]) -> int:
    """Run `ludic sandbox`; 1 if no sandbox works, or if the default one breaks a guarantee.

    Raises ConfigError for an unknown sandbox.
    """
    args = parse(SandboxArgs, argv, command="sandbox", examples=EXAMPLES)
    unknown = set(args.only) - set(BACKENDS)
    if unknown:
        raise ConfigError(f"no sandbox {min(unknown)!r}; there are {', '.join(BACKENDS)}")
    findings = {name: examine(name) for name in BACKENDS if not args.only or name in args.only}
    if args.json:
        print_json({name: asdict(found) for name, found in findings.items()})
    else:
        print_table(("guarantee", *findings), table_rows(findings))
        print(*remarks(findings), sep="\n")
    # `BACKENDS` is in order of preference: environments use the first that works.
    first = next((one for one in findings.values() if not one.why_not), None)
    return 0 if first and first.sound else 1


def examine(name: str) -> Finding:
    """Test the sandbox of that name; this takes some seconds."""
    reason = why_not(name)
    if reason:
        return Finding(why_not=reason, broken={})

    async def probed() -> dict[str, str]:
        # No processes in reserve: they would be started for a few programs only.
        sandbox = open_sandbox(name, warm=0)
        try:
            return await find_breaches(sandbox)
        finally:
            await sandbox.close()

    return Finding(broken=run_blocking(probed()))


def table_rows(findings: Mapping[str, Finding]) -> list[tuple[str, ...]]:
    """A row per guarantee: its name, then its state in each sandbox: holds, BROKEN or -.

    "-" stands for a guarantee that was not tested, or that the sandbox does not give.
    """
    names = [field.name for field in fields(Guarantees)]
    # `broken` lacks the guarantees that a sandbox does not give, and has "" for those that hold.
    states = {None: ABSENT, "": HOLDS}
    return [
        (name, *(states.get(one.broken.get(name), BROKEN) for one in findings.values()))
        for name in names
    ]


def remarks(findings: Mapping[str, Finding]) -> list[str]:
    """Lines below the table: details of failures, and the sandbox that environments use."""
    lines = [
        f"{name} does not work here: {one.why_not}" for name, one in findings.items() if one.why_not
    ]
    for name, one in findings.items():
        lines += [f"{name}, {what}: {why}" for what, why in one.broken.items() if why]
    working = [name for name, one in findings.items() if not one.why_not]
    used = f"Environments use {working[0]}." if working else "None works: apt install bubblewrap"
    return ["", *lines, memory_remark(), used]


def memory_remark() -> str:
    """The mechanism by which bubblewrap and native limit the memory of a whole program."""
    where = place()
    if where.why_not:
        return (
            f"Memory is measured ten times a second: no control group can be made ({where.why_not})"
        )
    return f"Memory is limited by control groups (version {where.version}) in {where.folder}"
