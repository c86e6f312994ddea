"""Read the text of a file."""


class ConfigError(Exception):
    """A line that cannot be read; the message begins with its number."""


def parse(text):
    """{section: {key: text}}; keys before the first section belong to the section "".

    "#" at the start of a line, or after a blank, begins a comment. A line that begins with blanks
    continues the value before it. A section may come again; a key of a section may not.
    """
    sections = {"": {}}
    current = sections[""]
    last = None
    for number, line in enumerate(text.splitlines(), 1):
        line = without_comment(line)
        if not line.strip():
            last = None
            continue
        if line[0].isspace():
            if last is None:
                raise ConfigError(f"{number}: nothing to continue")
            current[last] += " " + line.strip()
        elif line.startswith("["):
            if not line.rstrip().endswith("]"):
                raise ConfigError(f"{number}: section without ]")
            name = line.strip()[1:-1].strip()
            current = sections.setdefault(name, {})
            last = None
        else:
            key, sign, value = line.partition("=")
            if not sign:
                raise ConfigError(f"{number}: no = in {line.strip()!r}")
            last = key.strip().lower()
            if last in current:
                raise ConfigError(f"{number}: {last} is given twice")
            current[last] = value.strip()
    return sections


def without_comment(line):
    """The line up to its comment."""
    if line.startswith("#"):
        return ""
    cut = line.find(" #")
    return line if cut < 0 else line[:cut]
