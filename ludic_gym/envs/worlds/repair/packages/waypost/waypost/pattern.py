"""Patterns of paths, such as "/users/{id:int}/files/{rest:path}"."""

import re

KINDS = {
    "str": ("[^/]+", str),
    "int": ("[0-9]+", int),
    "path": (".+", str),
}
HOLE = re.compile(r"\{(\w+)(?::(\w+))?\}")


class Pattern:
    """A pattern with holes {name} or {name:kind}; kinds are str (the default), int and path."""

    def __init__(self, text):
        self.text = text
        self.kinds = {}
        source = ""
        end = 0
        for hole in HOLE.finditer(text):
            name, kind = hole[1], hole[2] or "str"
            if kind not in KINDS:
                raise ValueError(f"unknown kind {kind!r}")
            if name in self.kinds:
                raise ValueError(f"{name!r} comes twice")
            self.kinds[name] = kind
            source += re.escape(text[end : hole.start()]) + f"(?P<{name}>{KINDS[kind][0]})"
            end = hole.end()
        self.regex = re.compile(source + re.escape(text[end:]) + "/?")

    def match(self, path):
        """The values of the holes, None if the path does not fit; a final slash is ignored."""
        found = self.regex.fullmatch(path)
        if found is None:
            return None
        return {name: KINDS[kind][1](found[name]) for name, kind in self.kinds.items()}

    def build(self, **values):
        """The path with these values. Raises ValueError if one is missing or left over."""
        missing = self.kinds.keys() - values.keys()
        unused = values.keys() - self.kinds.keys()
        if missing or unused:
            raise ValueError(f"missing {sorted(missing)}, unused {sorted(unused)}")
        return HOLE.sub(lambda hole: str(values[hole[1]]), self.text)

    def weight(self):
        """Sorts exact patterns first: number of path holes, of all holes, then longer texts."""
        paths = sum(kind == "path" for kind in self.kinds.values())
        return (paths, len(self.kinds), -len(self.text))
