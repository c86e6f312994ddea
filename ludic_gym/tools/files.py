"""A file system that exists only in memory: small text files under absolute paths."""

import posixpath
from collections.abc import Callable, Mapping

from ludic_gym.tools.tool import Tool, as_tool

MOST_FILES = 200
MOST_CHARACTERS = 100_000


class SimulatedFiles:
    """Files by path, and tools that list, read, write, move, remove and search them.

    contents: texts by absolute path, copied. A policy can use the files as notes. An environment
    can have them as its state, and compare `contents` at the end. They are in memory only.

        policy = ToolUse(chat, files.tools())

    >>> files = SimulatedFiles({"/inbox/mail.txt": "Meet at noon"})
    >>> files.write_file("/notes/today.txt", "noon: meeting")
    'wrote 13 characters to /notes/today.txt'
    >>> print(files.find_text("noon"))
    /inbox/mail.txt:1: Meet at noon
    /notes/today.txt:1: noon: meeting

    Folders exist as parts of paths. At most `MOST_FILES` files and `MOST_CHARACTERS` characters.
    A method raises an OSError for a path that does not fit, which models get as text.
    """

    def __init__(self, contents: Mapping[str, str] | None = None) -> None:
        self.contents = {_normal(path): text for path, text in (contents or {}).items()}

    def tools(self) -> tuple[Tool, ...]:
        """All six tools, bound to these files: two policies with them share the files."""
        functions: list[Callable[..., str]] = [self.list_files, self.read_file, self.find_text]
        functions += [self.write_file, self.move_file, self.remove_file]
        return tuple(as_tool(function) for function in functions)

    # The docstrings from here on are read by models, as the descriptions of the tools.
    def list_files(self, folder: str = "/") -> str:
        """List all files in a folder and below it.

        folder: its path
        """
        return "\n".join(self._below(folder)) or "no files"

    def read_file(self, path: str) -> str:
        """Read a file.

        path: its path, such as /notes/today.txt
        """
        return self.contents[self._existing(path)]

    def write_file(self, path: str, text: str, append: bool = False) -> str:
        """Write a file, which need not exist.

        path: its path
        text: what to write
        append: add the text at the end instead of replacing what is there
        """
        path = self._placed(path)
        text = self.contents.get(path, "") + text if append else text
        size = len(text) + sum(len(t) for p, t in self.contents.items() if p != path)
        # Before the change: a call that is refused must leave the files as they were.
        if len({*self.contents, path}) > MOST_FILES or size > MOST_CHARACTERS:
            raise OSError(f"no space: {MOST_FILES} files with {MOST_CHARACTERS} characters at most")
        self.contents[path] = text
        return f"wrote {len(text)} characters to {path}"

    def move_file(self, path: str, to: str) -> str:
        """Give a file another path.

        path: its path
        to: the new path, where no file may be
        """
        old, new = self._existing(path), self._placed(to)
        if new in self.contents:
            raise FileExistsError(f"{new} exists")
        self.contents[new] = self.contents.pop(old)
        return f"moved {old} to {new}"

    def remove_file(self, path: str) -> str:
        """Remove a file.

        path: its path
        """
        old = self._existing(path)
        del self.contents[old]
        return f"removed {old}"

    def find_text(self, text: str, folder: str = "/") -> str:
        """Find the lines of files that hold a text.

        text: what to look for, exactly
        folder: where to look
        """
        matches = [
            f"{path}:{number}: {line}"
            for path in self._below(folder)
            for number, line in enumerate(self.contents[path].splitlines(), 1)
            if text in line
        ]
        return "\n".join(matches) or "no line"

    def _below(self, folder: str) -> list[str]:
        """The paths of all files below a folder, sorted; none for a folder that does not exist."""
        start = _normal(folder).rstrip("/") + "/"
        return sorted(path for path in self.contents if path.startswith(start))

    def _placed(self, path: str) -> str:
        """The normal form of a path that is no folder and below no file. Raises an OSError."""
        normal = _normal(path)
        if normal == "/" or any(other.startswith(f"{normal}/") for other in self.contents):
            raise IsADirectoryError(f"{normal} is a folder")
        for other in self.contents:
            if normal.startswith(f"{other}/"):
                raise NotADirectoryError(f"{other} is a file")
        return normal

    def _existing(self, path: str) -> str:
        """The normal form of a file's path. Raises FileNotFoundError if there is no such file."""
        normal = _normal(path)
        if normal not in self.contents:
            raise FileNotFoundError(f"there is no file {normal}")
        return normal


def _normal(path: str) -> str:
    """The path from the root, without . and .. and doubled slashes.

    >>> _normal("notes//../today.txt"), _normal("../../etc/passwd")
    ('/today.txt', '/etc/passwd')
    """
    return posixpath.normpath("/" + path.lstrip("/"))
