"""Terminal: tasks for a shell, judged by the files at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ludic_gym.envs.core.base import Info, Turn, checked_choice, end, pick, proceed, random_order
from ludic_gym.envs.core.code import OUTPUT, SandboxedEnv
from ludic_gym.envs.core.levels import LEVELS, SPLITS, Level, Split, draw_in_split
from ludic_gym.envs.worlds.shell.files import FILES, PERMISSIONS, TEXT
from ludic_gym.envs.worlds.shell.git import GIT
from ludic_gym.envs.worlds.shell.processes import DEBUGGING, SERVICE_TASKS
from ludic_gym.envs.worlds.shell.task import Task, execute, home_of, judge
from ludic_gym.errors import SandboxError
from ludic_gym.graders.programs.blocks import blocks_in, is_fenced
from ludic_gym.reader import without_thought
from ludic_gym.tools.tool import shorten

Maker = Callable[[str, np.random.Generator], Task]
"""A task in a folder of that name."""

FAMILIES: Mapping[str, tuple[Maker, ...]] = {
    "files": FILES,
    "text": TEXT,
    "permissions": PERMISSIONS,
    "git": GIT,
    "services": SERVICE_TASKS,
    "debugging": DEBUGGING,
}
DONE = ("done", "exit", "submit")
# Level -> numbers of tasks, each of another family, and of commands.
SIZES: Mapping[str, tuple[int, int]] = {"easy": (1, 6), "medium": (2, 12), "hard": (4, 24)}
LANGUAGES = ("bash", "sh", "shell", "console")
HELP = 'Reply with commands in a ```bash block, with one command after "$ ", or with done.'
PROMPT = (
    "You work at a Linux shell. Reply with bash commands in a ```bash block, or with one command "
    'after "$ "; you are shown their output. The working directory and all files are kept from '
    "command to command; variables and processes are not. There is no network. Files that a task "
    "does not speak about must not change. Reply with done when all is done. You have {turns} "
    "turns."
)


class TerminalEnv(SandboxedEnv):
    """Tasks for bash in a sandbox: files, text, permissions, git, services, debugging.

    Each command runs in a new sandbox that gets the home folder as the last one has left it. A
    checker looks at the final files from outside; programs that the tasks demand are run by it in
    yet another sandbox, with inputs that the player has not seen. The clock is the machine's, so
    that times in outputs differ from run to run; all else follows from seed and commands.

    - Observation: the tasks; later output and exit code of each command.
    - Action: bash commands in a ```bash block, or a command after "$ "; "done" ends the episode,
      and so does the last turn.
    - Reward: 1 if all tasks are done and no other file has changed, else 0 (component "tasks").
    - Info: "sandbox" in the first info; "illegal" in every step; in the last one, "done" is the
      number of tasks that are done, and "faults" says what is wrong with the others. If the sandbox
      fails, the episode is truncated, and info["error"] has the reason.

    Args:
        level: "easy" (1 task, 6 turns), "medium" (2 tasks of different families, 12 turns) or
            "hard" (4 tasks, 24 turns).
        family: "files", "text", "permissions", "git", "services" or "debugging" for tasks of that
            family alone, of which there is then one, or "all".
        **options: see `SandboxedEnv`.
    """

    def __init__(
        self,
        level: Level = "easy",
        family: str = "all",
        split: Split = "all",
        *,
        render_mode: str | None = None,
        **options: Any,  # noqa: ANN401 (SandboxedEnv checks them)
    ) -> None:
        super().__init__(render_mode=render_mode, **options)
        self._count, self._turns = SIZES[checked_choice("level", level, LEVELS)]
        checked_choice("family", family, ("all", *FAMILIES))
        self._families = tuple(FAMILIES) if family == "all" else (family,)
        self._split = checked_choice("split", split, SPLITS)
        self._turns_left = self._turns

    def start(self, options: Mapping[str, Any]) -> tuple[str, Info]:
        """Draw tasks and set them up. Raises NoSandbox if no sandbox works."""
        sandbox = self.sandbox_info()
        self.tasks = draw_in_split(self._drawn_tasks, self._split)
        self._turns_left = self._turns
        self._solved = 0
        self.home = home_of(self.tasks)
        # Before the first command: an episode without any needs no sandbox.
        self._begun = False
        text = "\n".join(f"{i}. {task.text}" for i, task in enumerate(self.tasks, 1))
        prompt = PROMPT.format(turns=self._turns)
        return text, {"system_prompt": prompt, "sandbox": sandbox}

    def turn(self, action: str) -> Turn:
        """Run the command, or judge the files."""
        self._turns_left -= 1
        command = command_in(action)
        try:
            if command in DONE:
                return self._ended("", illegal=False)
            text = self._executed(command) if command else f"That is no command. {HELP}"
            if self._turns_left:
                return proceed(text, info={"illegal": not command})
            return self._ended(text, illegal=not command)
        except SandboxError as error:
            return self.failed(error, {"illegal": not command}, "tasks")

    def _executed(self, command: str) -> str:
        """The output of the command, and its exit code where that says something."""
        # The oracle's own progress; solutions of others are judged at the end.
        if self._solved < len(self.tasks) and command == self.tasks[self._solved].solution:
            self._solved += 1
        if not self._begun:
            self._begun = True
            if setup := "\n".join(task.setup for task in self.tasks if task.setup):
                # Such as histories of git, which are made by the git of the sandbox.
                self.home = execute(self.run, self.home, setup).home
        outcome = execute(self.run, self.home, command)
        self.home = outcome.home
        parts = [shorten(outcome.output.rstrip("\n"), OUTPUT)]
        if outcome.code or not outcome.output:
            parts.append(f"(exit code {outcome.code})")
        return "\n".join(filter(None, parts))

    def _ended(self, text: str, *, illegal: bool) -> Turn:
        # No task is done at its start.
        idle = [["nothing was done"] for _ in self.tasks]
        faults_of_tasks = judge(self.run, self.home, self.tasks) if self._begun else idle
        success = not any(faults_of_tasks)
        wrong = "; ".join(fault for faults in faults_of_tasks for fault in faults)
        info = {
            "illegal": illegal,
            "done": sum(not faults for faults in faults_of_tasks),
            "faults": wrong[:500],
        }
        return end(text, success=success, info=info, tasks=success)

    def picture(self) -> str:
        """The tasks and the names of all files."""
        tasks = "\n".join(task.text for task in self.tasks)
        return "\n".join([tasks, *sorted(self.home.entries)])

    def best_action(self) -> str:
        """The solution of each task in turn, then "done"."""
        if self._solved == len(self.tasks):
            return DONE[0]
        return f"```bash\n{self.tasks[self._solved].solution}\n```"

    def _drawn_tasks(self) -> tuple[Task, ...]:
        rng = self.np_random
        names = random_order(rng, FOLDERS)
        families = random_order(rng, self._families)[: self._count]
        return tuple(
            pick(rng, FAMILIES[f])(name, rng) for f, name in zip(families, names, strict=False)
        )


FOLDERS = (
    "harbour", "orchard", "lantern", "meadow", "granite", "willow", "copper", "ember", "falcon",
    "juniper", "kestrel", "marble", "nectar", "onyx", "pebble", "quartz", "raven", "saffron",
)  # fmt: skip


def command_in(action: str) -> str:
    """The commands of all blocks of a reply in order, one of `DONE`, or "" for none.

    Only a fenced block, or a line after "$ ", is executed: a sentence would be a dangerous command.

    >>> command_in("$ ls"), command_in("Done."), command_in("I list the files.")
    ('ls', 'done', '')
    """
    said = without_thought(action)
    if is_fenced(said):
        command = "\n".join(blocks_in(said, LANGUAGES)).strip()
    elif said.startswith("$ "):
        command = said[2:].strip()
    else:
        command = said.strip("`.").lower()
        return command if command in DONE else ""
    # Bash takes neither null bytes nor lone surrogates.
    return command.replace("\0", "").encode("utf-8", "replace").decode()
