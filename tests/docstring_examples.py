"""Examples in the docstrings of a package."""

import doctest
from importlib import import_module
from pathlib import Path


def modules_with_examples(package):
    """Names of the modules of a package whose docstrings have examples."""
    root = Path(package.__file__).parent
    return sorted(
        ".".join(path.relative_to(root.parent).with_suffix("").parts).removesuffix(".__init__")
        for path in root.rglob("*.py")
        if ">>> " in path.read_text(encoding="utf-8")
    )


def tried(module):
    """The number of examples of a module, and of those that failed."""
    result = doctest.testmod(import_module(module))
    return result.attempted, result.failed
