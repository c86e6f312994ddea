"""`ludic audit`: test whether the reward of an environment can be trusted.

    $ ludic audit ludic/ConnectFour-v0
    ok      ludic/ConnectFour-v0: 38 passed, 0 failed, 8 not judged, its truths among them

The checks are those of `ludic_gym.audit`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from envs_registry.catalog import CATALOG
from ludic_gym.audit.report import audit_env, write_audit
from ludic_gym.audit.subject import AuditSubject, Statement, statement_of
from ludic_gym.commands.arguments import (
    env_name,
    keyword_arguments,
    option,
    parse,
    readable_env_errors,
)
from ludic_gym.errors import ConfigError

EXAMPLES = """\
ludic audit ludic/TicTacToe-v0
ludic audit ludic/Arithmetic-v0 --levels digits=1,2,4
ludic audit my_envs:mine/Riddle-v0 --floor 0.25 --out audits
ludic audit --all"""


@dataclass(frozen=True, kw_only=True)
class AuditArgs:
    """Test whether the reward of an environment can be trusted.

    The exit code is 1 if a check fails. A check that is not judged is no failure.
    """

    ids: Annotated[tyro.conf.Positional[tuple[str, ...]], option("ID [ID ...]")]
    """Environment ids; module:id for your own, if importing the module registers it."""
    all: tyro.conf.FlagCreatePairsOff[bool] = False
    """Audit every environment of this package, which takes some minutes."""
    env_kwargs: Annotated[tuple[str, ...], option("KEY=VALUE ...")] = ()
    """Arguments of the env."""
    oracle: Annotated[float | None, option("RATE")] = None
    """Stated success rate of the oracle; the catalogue's, or 1."""
    random: Annotated[float | None, option("RATE")] = None
    """Stated success rate of random play; the catalogue's, or none."""
    floor: Annotated[float | None, option("RATE")] = None
    """Highest success rate of a reply that is fixed before the task is read; 0.5 by default."""
    partial: Annotated[float | None, option("RATE")] = None
    """Highest share of a success's reward that a failure may be paid; 0.05 by default."""
    tasks: Annotated[int | None, option("N")] = None
    """Number of different tasks that seeds play; many, or that of the rows."""
    levels: Annotated[str, option("NAME=EASY,...,HARD")] = ""
    """An argument of the env and its values in the order of their difficulty."""
    episodes: int = 48
    """Episodes per measurement."""
    out: Annotated[Path | None, option("DIR")] = None
    """Write audit.json, with the evidence, into a folder per environment."""


def main(argv: list[str]) -> int:
    """Run `ludic audit`; 1 if a check fails. Raises ConfigError for an unknown id."""
    args = parse(AuditArgs, argv, command="audit", examples=EXAMPLES)
    if bool(args.ids) == args.all:
        raise ConfigError(
            "name at least one environment (see `ludic list --all`), or all of this package with "
            "--all"
        )
    if args.episodes < 1:
        raise ConfigError(f"--episodes is at least 1, got {args.episodes}")
    ids = [entry.id for entry in CATALOG] if args.all else args.ids
    subjects = [subject_of(spec, args) for spec in ids]
    # Every id is made first: a misspelt one must be reported at once, not after minutes.
    for subject in subjects:
        name, values = subject.statement.levels
        with readable_env_errors():
            subject.make().close()
            # A level that the environment does not take is no fault of its rewards.
            for value in values:
                replace(subject, kwargs={**subject.kwargs, name: value}).make().close()
    failed = False
    for subject in subjects:
        report = audit_env(subject)
        failed |= bool(report.failed)
        counts = report.counts
        head = f"{counts['pass']} passed, {counts['fail']} failed"
        head += f", {counts['not judged']} not judged"
        # The environment's own oracle and grader may agree on what is wrong.
        head += "" if report.truths_judged else ", its truths among them"
        print(f"{'FAILED' if report.failed else 'ok':8}{subject.env_id}: {head}", flush=True)
        for finding in report.findings:
            if finding.outcome != "pass":
                print(f"        {finding.outcome:11}{finding.check}: {finding.summary}", flush=True)
        if args.out is not None:
            # After each one, so that Ctrl-C loses the present environment alone.
            write_audit(report, args.out / subject.env_id.replace("/", "-"))
    return 1 if failed else 0


def subject_of(spec: str, args: AuditArgs) -> AuditSubject:
    """The subject that the arguments describe. spec: "id" or "module:id"."""
    env_id = env_name(spec)
    names = ("oracle", "random", "floor", "partial")
    changes: dict[str, Any] = {
        name: rate for name in names if (rate := getattr(args, name)) is not None
    }
    for name, rate in changes.items():
        if not 0.0 <= rate <= 1.0:
            raise ConfigError(f"--{name} is a rate from 0 to 1, got {rate}")
    if args.tasks is not None:
        if args.tasks < 1:
            raise ConfigError(f"--tasks is at least 1, got {args.tasks}")
        changes["tasks"] = args.tasks
    if args.levels:
        changes["levels"] = levels_of(args.levels)
    kwargs = keyword_arguments(args.env_kwargs)
    # The catalogue's rates are those of the default arguments.
    stated = Statement() if kwargs else statement_of(env_id)
    return AuditSubject(
        env_id=env_id, kwargs=kwargs, statement=replace(stated, **changes), episodes=args.episodes
    )


def levels_of(text: str) -> tuple[str, tuple[Any, ...]]:
    """The argument and its values, each of them JSON or a string.

    >>> levels_of("digits=1,2,4")
    ('digits', (1, 2, 4))
    """
    name, equals, values = text.partition("=")
    levels = tuple(keyword_arguments([f"v={value}"])["v"] for value in values.split(","))
    if not equals or len(levels) < 2:
        raise ConfigError(f"--levels is NAME=EASY,...,HARD with two levels at least, got {text!r}")
    return name, levels
