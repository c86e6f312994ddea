"""Tasks of Terminal about git repositories."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ludic_gym.envs.core.base import pick, random_int
from ludic_gym.envs.worlds.shell.task import Task, sentence, words

LOG = ("log", "--format=%s", "main")


def _begun(folder: str, files: dict[str, str], message: str = "Begin") -> str:
    """Commands that make a repository with a first commit of these files."""
    writes = "; ".join(f"echo '{text}' > {name}" for name, text in files.items())
    return f"mkdir -p ~/{folder}; cd ~/{folder}; git init -q -b main; {writes}; {_commit(message)}"


def _commit(message: str) -> str:
    return f"git add -A; git commit -qm '{message}'"


def _task(
    folder: str,
    text: str,
    setup: str,
    solution: str,
    *checks: tuple[tuple[str, ...], str],
    want: Mapping[str, str] | None = None,
) -> Task:
    """A task on the repository. checks: arguments of git, and the output of each."""
    return Task(
        text=f"In the git repository {folder}, {text}",
        files={},
        setup=setup,
        solution=f"cd ~/{folder}; {solution}",
        git=tuple(((folder, (arguments,)), output) for arguments, output in checks),
        want=want or {},
    )


def commit(folder: str, rng: np.random.Generator) -> Task:
    """Commit all changes."""
    a, b, c = words(rng, 3)
    first, second, message = sentence(rng), sentence(rng), f"Add {b} and change {a}"
    setup = _begun(folder, {a: first, c: first}) + f"; echo '{second}' > {a}; echo '{second}' > {b}"
    return _task(
        folder,
        f'commit all changes and new files on the branch main, with the message "{message}".',
        setup,
        _commit(message),
        (LOG, f"{message}\nBegin"),
        (("show", f"main:{a}"), second),
        (("show", f"main:{b}"), second),
        (("show", f"main:{c}"), first),
    )


def one_file(folder: str, rng: np.random.Generator) -> Task:
    """Commit one of two changed files."""
    a, b = words(rng, 2)
    first, second = sentence(rng), sentence(rng)
    setup = _begun(folder, {a: first, b: first}) + f"; echo '{second}' | tee {a} > {b}"
    return _task(
        folder,
        f'the files {a} and {b} have changed. Commit the change of {a} with the message "Change '
        f'{a}", and leave the change of {b} uncommitted.',
        setup,
        f"git reset -q; git add {a}; git commit -qm 'Change {a}'",
        (LOG, f"Change {a}\nBegin"),
        (("show", f"main:{a}"), second),
        (("show", f"main:{b}"), first),
        want={f"{folder}/{b}": f"{second}\n"},
    )


def branch(folder: str, rng: np.random.Generator) -> Task:
    """Commit on a new branch."""
    a, b, name = words(rng, 3)
    text = sentence(rng)
    return _task(
        folder,
        f"make a branch {name} from main, and commit on it the new file {b} with the line "
        f'"{text}", with the message "Add {b}". The branch main must not change.',
        _begun(folder, {a: text}),
        f"git checkout -q -b {name}; echo '{text}' > {b}; {_commit(f'Add {b}')}",
        (LOG, "Begin"),
        (("log", "--format=%s", name), f"Add {b}\nBegin"),
        (("show", f"{name}:{b}"), text),
    )


def restore(folder: str, rng: np.random.Generator) -> Task:
    """Bring back a file that was deleted in a commit."""
    a, b = words(rng, 2)
    text = sentence(rng)
    setup = f"{_begun(folder, {a: text, b: text})}; git rm -q {a}; git commit -qm 'Remove {a}'"
    return _task(
        folder,
        f"the last commit has removed the file {a}. Bring it back with its old content, and commit "
        f'that with the message "Restore {a}".',
        setup,
        f"git checkout -q HEAD~1 -- {a}; git commit -qm 'Restore {a}'",
        (LOG, f"Restore {a}\nRemove {a}\nBegin"),
        (("show", f"main:{a}"), text),
        (("show", f"main:{b}"), text),
    )


def merge(folder: str, rng: np.random.Generator) -> Task:
    """Merge a branch."""
    a, b, c, name = words(rng, 4)
    text = sentence(rng)
    setup = (
        f"{_begun(folder, {a: text})}; git checkout -q -b {name}; echo '{text}' > {b}; "
        f"{_commit(f'Add {b}')}; git checkout -q main; echo '{text}' > {c}; {_commit(f'Add {c}')}"
    )
    return _task(
        folder,
        f"merge the branch {name} into main, so that main has the commits of both.",
        setup,
        f"git checkout -q main; git merge -q --no-edit {name}",
        (("merge-base", "--is-ancestor", name, "main"), ""),
        # The command above prints nothing either way; this one names main once it has the commit.
        (
            ("branch", "--contains", name, "--format=%(refname:short)"),
            "\n".join(sorted(("main", name))),
        ),
        (("show", f"main:{b}"), text),
        (("show", f"main:{c}"), text),
        (("log", "--format=%s", "-1", name), f"Add {b}"),
    )


def tag(folder: str, rng: np.random.Generator) -> Task:
    """Tag an earlier commit."""
    a, *names = words(rng, 5)
    version = f"v{random_int(rng, 1, 9)}.{random_int(rng, 0, 9)}"
    adds = "; ".join(f"echo '{n}' > {n}; {_commit(f'Add {n}')}" for n in names)
    # Not the newest commit, which a tag without an argument would name.
    chosen = pick(rng, names[:-1])
    return _task(
        folder,
        f'give the commit with the message "Add {chosen}" the tag {version}.',
        f"{_begun(folder, {a: a})}; {adds}",
        f"git tag {version} $(git log --format=%H --grep='^Add {chosen}$')",
        (("log", "--format=%s", "-1", version), f"Add {chosen}"),
        (LOG, "\n".join([*(f"Add {n}" for n in reversed(names)), "Begin"])),
    )


def revert(folder: str, rng: np.random.Generator) -> Task:
    """Revert the last commit."""
    a, b = words(rng, 2)
    good, bad = sentence(rng), sentence(rng) + " again"
    setup = f"{_begun(folder, {a: good, b: good})}; echo '{bad}' > {a}; {_commit('Break it')}"
    return _task(
        folder,
        "the last commit was a mistake. Undo it by a new commit (as git revert does) with any "
        "message, so that the history has three commits and the old one stays in it.",
        setup,
        "git revert --no-edit HEAD",
        (("rev-list", "--count", "main"), "3"),
        # The old commit is still there, so that a reset is no solution.
        (("log", "--format=%s", "main~1"), "Break it\nBegin"),
        (("show", f"main:{a}"), good),
        (("show", f"main:{b}"), good),
    )


def rename(folder: str, rng: np.random.Generator) -> Task:
    """Rename a branch."""
    a, old, new = words(rng, 3)
    return _task(
        folder,
        f"rename the branch {old} to {new}.",
        f"{_begun(folder, {a: a})}; git checkout -q -b {old}; echo {old} > {old}; "
        f"{_commit('More')}; git checkout -q main",
        f"git branch -m {old} {new}",
        (("branch", "--format=%(refname:short)"), "\n".join(sorted(("main", new)))),
        (("log", "--format=%s", new), "More\nBegin"),
    )


def culprit(folder: str, rng: np.random.Generator) -> Task:
    """Find the commit that brought a word."""
    a, b, *names = words(rng, 7)
    secret, chosen = f"token-{random_int(rng, 100, 999)}", pick(rng, names)
    adds = "; ".join(
        f"echo '{secret if n == chosen else n}' >> {b}; {_commit(f'Say {n}')}" for n in names
    )
    return _task(
        folder,
        f'write the message of the commit that has added the text "{secret}" to the file {b}, to '
        f"the file {folder}-commit.txt in your home folder.",
        # Removed by the last commit: the files no longer name it, and only the history does.
        f"{_begun(folder, {a: a, b: a})}; {adds}; echo empty > {b}; {_commit('Clean up')}",
        f"git log --reverse --format=%s -S {secret} -- {b} | head -1 > ~/{folder}-commit.txt",
        (("rev-list", "--count", "main"), str(len(names) + 2)),
        want={f"{folder}-commit.txt": f"Say {chosen}\n"},
    )


def drop(folder: str, rng: np.random.Generator) -> Task:
    """Delete the branches that are merged."""
    a, one, two, three = words(rng, 4)
    setup = (
        f"{_begun(folder, {a: a})}; git branch {one}; git branch {two}; "
        f"git checkout -q -b {three}; echo x > x; {_commit('Open work')}; git checkout -q main"
    )
    return _task(
        folder,
        "delete all branches that are fully merged into main, except main itself.",
        setup,
        f"git branch -d {one} {two}",
        (("branch", "--format=%(refname:short)"), "\n".join(sorted(("main", three)))),
        (("log", "--format=%s", three), "Open work\nBegin"),
    )


GIT = (commit, one_file, branch, restore, merge, tag, revert, rename, culprit, drop)
