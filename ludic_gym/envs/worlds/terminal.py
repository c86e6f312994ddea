"""Terminal: tasks for a shell, judged by the files at the end."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ludic_gym.envs.core.base import Info, Turn, checked_choice, end, pick, proceed
from ludic_gym.envs.core.sandboxed import OUTPUT, SandboxedEnv
from ludic_gym.envs.core.splits import LEVELS, SPLITS, Level, Split, drawn
from ludic_gym.envs.worlds.quests.names import shuffled
from ludic_gym.envs.worlds.shell.families import FAMILIES
from ludic_gym.envs.worlds.shell.machine import executed
from ludic_gym.envs.worlds.shell.task import Task, home_of, judged
from ludic_gym.errors import SandboxError
from ludic_gym.graders.programs.types import program_in
from ludic_gym.tools.tool import shortened

DONE = ("done", "exit", "submit")
# Level -> numbers of tasks, each of another family, and of commands.
SIZES: Mapping[str, tuple[int, int]] = MappingProxyType(
    {"easy": (1, 10), "medium": (2, 20), "hard": (4, 40)}
)
LANGUAGES = ("bash", "sh", "shell", "console")
PROMPT = (
    "You work at a Linux shell. Reply with a bash command, or several lines of them, and nothing "
    "else; a ```bash block is fine too. You are shown the output. The working directory and all "
    "files are kept from command to command; variables and processes are not. There is no network. "
    "Files that a task does not speak about must not change. Reply with done when all is done. You "
    "have {turns} turns."
)


class TerminalEnv(SandboxedEnv):
    """Tasks for bash in a sandbox: files, text, permissions, git, services, debugging.

    Each command runs in a new sandbox that gets the home folder as the last one has left it. A
    checker looks at the final files from outside; programs that the tasks demand are run by it in
    yet another sandbox, with inputs that the player has not seen. The clock is the machine's, so
    that times in outputs differ from run to run; all else follows from seed and commands.

    - Observation: the tasks; later output and exit code of each command.
    - Action: bash commands, alone or in a fenced block; "done" ends the episode, and so does the
      last turn.
    - Reward: 1 if all tasks are done and no other file has changed, else 0 (component "tasks").
    - Info: "sandbox" in the first info; in the last one, "done" is the number of tasks that are
      done, and "faults" says what is wrong with the others. If the sandbox fails, the episode is
      truncated, and info["error"] has the reason.

    Args:
        level: "easy" (1 task, 10 turns), "medium" (2 tasks of different families, 20 turns) or
            "hard" (4 tasks, 40 turns).
        family: "files", "text", "permissions", "git", "services" or "debugging" for tasks of that
            family alone, of which there is then one, or "all".
        split: "train" and "test" have no tasks in common; one in five is in "test".
        render_mode: "ansi", "html" or None.
        **options: see `SandboxedEnv`.

    ```text
    1. In the folder harbour, move all files whose names end in .log to the folder harbour/old.
    > cd harbour; ls
    a.log  b.txt  old
    > mv *.log old
    (exit code 0)
    > done                                      (reward 1)
    ```
    """

    def __init__(
        self,
        level: Level = "medium",
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
        self._tasks = drawn(self._drawn_tasks, self._split)
        self._turns_left = self._turns
        self._solved = 0
        self._home = home_of(self._tasks)
        if setup := "\n".join(task.setup for task in self._tasks if task.setup):
            self._home = executed(self.run, self._home, setup).home
        text = "\n".join(f"{i}. {task.text}" for i, task in enumerate(self._tasks, 1))
        prompt = PROMPT.format(turns=self._turns)
        return text, {"system_prompt": prompt, "sandbox": sandbox}

    def turn(self, action: str) -> Turn:
        """Run the command, or judge the files."""
        self._turns_left -= 1
        command = program_in(action, LANGUAGES).strip()
        try:
            if command.lower().rstrip(".") in DONE:
                return self._ended("")
            if self._solved < len(self._tasks) and command == self._tasks[self._solved].solution:
                self._solved += 1
            outcome = executed(self.run, self._home, _text(command) or ":")
            self._home = outcome.home
            parts = [shortened(outcome.output.rstrip("\n"), OUTPUT)]
            if outcome.code or not outcome.output:
                parts.append(f"(exit code {outcome.code})")
            text = "\n".join(filter(None, parts))
            return proceed(text) if self._turns_left else self._ended(text)
        except SandboxError as error:
            return self.failed(error, {}, "tasks")

    def _ended(self, text: str) -> Turn:
        found = judged(self.run, self._home, self._tasks)
        success = not any(found)
        wrong = "; ".join(fault for faults in found for fault in faults)
        info = {"done": sum(not faults for faults in found), "faults": wrong[:500]}
        return end(text, success=success, info=info, tasks=success)

    def picture(self) -> str:
        """The tasks and the names of all files."""
        tasks = "\n".join(task.text for task in self._tasks)
        return "\n".join([tasks, *sorted(self._home.entries)])

    def best_action(self) -> str:
        """The solution of each task in turn, then "done"."""
        return DONE[0] if self._solved == len(self._tasks) else self._tasks[self._solved].solution

    def _drawn_tasks(self) -> tuple[Task, ...]:
        rng = self.np_random
        names = shuffled(rng, FOLDERS)
        families = shuffled(rng, self._families)[: self._count]
        return tuple(
            pick(rng, FAMILIES[f])(name, rng) for f, name in zip(families, names, strict=False)
        )


FOLDERS = (
    "harbour", "orchard", "lantern", "meadow", "granite", "willow", "copper", "ember", "falcon",
    "juniper", "kestrel", "marble", "nectar", "onyx", "pebble", "quartz", "raven", "saffron",
)  # fmt: skip


def _text(command: str) -> str:
    """The command as bash can get it: without null bytes and lone surrogates."""
    return command.replace("\0", "").encode("utf-8", "replace").decode()
