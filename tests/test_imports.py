"""Which package may import which: read from the source, nothing is imported."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("envs_registry", "ludic_gym", "ludic_train", "ludic_vllm")
ALLOWED = {
    "envs_registry": {"envs_registry"},
    "ludic_gym": {"envs_registry", "ludic_gym"},
    "ludic_train": set(PACKAGES),
    "ludic_vllm": {"ludic_vllm"},
}
TRAINING_ONLY = {"torch", "transformers", "peft", "safetensors", "tokenizers", "redis"}
NEVER_IN_TRAIN = {"vllm", "flash_attn", "accelerate", "deepspeed"}
INSIDE_VLLM = ("ludic_vllm.engine", "ludic_vllm.worker", "ludic_vllm.tied")
HEAVY = ("torch", "transformers", "datasets", "aiohttp", "rich", "matplotlib", "tyro")

SOURCES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
by_file = pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))


def module_name(path: Path) -> str:
    """`ludic_gym/bench/__init__.py` -> "ludic_gym.bench"."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in SOURCES}


def is_type_checking(node: ast.AST) -> bool:
    """Whether the node is `if TYPE_CHECKING:`."""
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def import_nodes(tree: ast.AST, *, at_import_time: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """All imports, or only those that run when the module is imported."""
    for node in ast.iter_child_nodes(tree):
        late = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or is_type_checking(node)
        if at_import_time and late:
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        yield from import_nodes(node, at_import_time=at_import_time)


def imported(source: str, *, at_import_time: bool = False) -> set[str]:
    """Dotted names a source imports; `from a import b` is "a.b", which may name an attribute."""
    names: set[str] = set()
    for node in import_nodes(ast.parse(source), at_import_time=at_import_time):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif node.level:
            names.add("." * node.level)
        else:
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def roots(source: str) -> set[str]:
    """The top-level packages a source imports anywhere, inside functions too."""
    return {name.split(".")[0] for name in imported(source)}


def module_graph() -> dict[str, set[str]]:
    """Our modules, each with those of ours it needs to be imported."""
    graph: dict[str, set[str]] = {}
    for name, path in MODULES.items():
        targets = imported(path.read_text(), at_import_time=True)
        known = {t if t in MODULES else t.rpartition(".")[0] for t in targets}
        graph[name] = (known & MODULES.keys()) - {name}
    return graph


@pytest.mark.parametrize(
    ("source", "everywhere", "at_import_time"),
    [
        ("import torch.nn", {"torch.nn"}, {"torch.nn"}),
        ("from torch import nn, cuda", {"torch.nn", "torch.cuda"}, {"torch.nn", "torch.cuda"}),
        ("def f():\n    import torch", {"torch"}, set()),
        ("class A:\n    import torch", {"torch"}, {"torch"}),
        ("if TYPE_CHECKING:\n    import torch", {"torch"}, set()),
        ("try:\n    import torch\nexcept ImportError:\n    pass", {"torch"}, {"torch"}),
        ("from . import x", {"."}, {"."}),
    ],
)
def test_the_reader_of_imports_sees(source, everywhere, at_import_time):
    assert imported(source) == everywhere
    assert imported(source, at_import_time=True) == at_import_time


@by_file
def test_imports_point_down(path):
    package = path.relative_to(ROOT).parts[0]
    assert roots(path.read_text()) & set(PACKAGES) <= ALLOWED[package]


@by_file
def test_imports_are_absolute(path):
    assert not {name for name in imported(path.read_text()) if name.startswith(".")}


@by_file
def test_playing_and_registering_need_no_torch(path):
    if path.relative_to(ROOT).parts[0] in ("ludic_train", "ludic_vllm"):
        return
    assert not roots(path.read_text()) & TRAINING_ONLY


@by_file
def test_learning_leaves_engines_outside(path):
    # ludic_vllm runs inside vLLM, which loads it; a trainer takes its wire and its names alone.
    if path.relative_to(ROOT).parts[0] == "ludic_vllm":
        return
    names = imported(path.read_text())
    assert not {name.split(".")[0] for name in names} & NEVER_IN_TRAIN
    assert not {name for name in names if name.startswith(INSIDE_VLLM)}


def test_what_a_trainer_takes_from_the_plug_in_needs_no_vllm():
    for name in ("ludic_vllm", "ludic_vllm.wire"):
        needed = {n.split(".")[0] for n in imported(MODULES[name].read_text(), at_import_time=True)}
        assert "vllm" not in needed


@by_file
def test_a_file_has_at_most_400_lines(path):
    assert len(path.read_text().splitlines()) <= 400


def test_no_modules_import_each_other_in_a_circle():
    try:
        TopologicalSorter(module_graph()).prepare()
    except CycleError as error:
        pytest.fail("import cycle: " + " <- ".join(error.args[1]))


def test_import_of_ludic_gym_loads_nothing_heavy():
    program = f"import sys, ludic_gym; print(*sorted(sys.modules.keys() & set({HEAVY!r})))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr
