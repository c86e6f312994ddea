"""Directions of imports, read from the source: nothing is imported."""

import ast
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
INSIDE_VLLM = ("ludic_vllm.engine",)
# Has vLLM send params, and imports it when it does.
BY_VLLM = "ludic_train.cluster.publish.vllm_transfer"


def module_name(path: Path) -> str:
    """`ludic_gym/bench/__init__.py` -> "ludic_gym.bench"."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def programs(folder: str) -> list[Path]:
    """The Python files below a folder of the repository, in order."""
    return sorted((ROOT / folder).rglob("*.py"))


PATHS = [path for package in PACKAGES for path in programs(package)]
SOURCES = {module_name(path): path.read_text() for path in PATHS}


def is_type_checking(node: ast.AST) -> bool:
    """True for `if TYPE_CHECKING:`."""
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def import_nodes(
    tree: ast.AST, *, at_import_time: bool, types: bool = False
) -> Iterator[ast.Import | ast.ImportFrom]:
    """All imports, or only those that run when the module is imported, with or without types."""
    for node in ast.iter_child_nodes(tree):
        in_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if at_import_time and (in_function or (is_type_checking(node) and not types)):
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        yield from import_nodes(node, at_import_time=at_import_time, types=types)


def imported(source: str, *, at_import_time: bool = False, types: bool = False) -> set[str]:
    """Dotted names a source imports; `from a import b` is "a.b", which may name an attribute."""
    names: set[str] = set()
    for node in import_nodes(ast.parse(source), at_import_time=at_import_time, types=types):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif node.level:
            names.add("." * node.level)
        else:
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def module_graph(*, types: bool = False) -> dict[str, set[str]]:
    """Our modules, each with those of ours it needs to be imported; types: and for its types."""
    graph: dict[str, set[str]] = {}
    for name, source in SOURCES.items():
        targets = imported(source, at_import_time=True, types=types)
        known = {t if t in SOURCES else t.rpartition(".")[0] for t in targets}
        graph[name] = (known & SOURCES.keys()) - {name}
    return graph


def package_of(module: str) -> str:
    """`ludic_gym.bench` -> "ludic_gym"."""
    return module.partition(".")[0]


@pytest.fixture(scope="module")
def names() -> dict[str, set[str]]:
    """Every module with the dotted names that it imports, inside functions too."""
    return {module: imported(source) for module, source in SOURCES.items()}


@pytest.fixture(scope="module")
def roots(names: dict[str, set[str]]) -> dict[str, set[str]]:
    """Every module with the top-level packages that it imports, inside functions too."""
    return {module: {n.partition(".")[0] for n in found} for module, found in names.items()}


def offenders(found: dict[str, set[str]]) -> dict[str, set[str]]:
    """The modules for which something was found."""
    return {module: wrong for module, wrong in found.items() if wrong}


@pytest.mark.long
def test_imports_point_down(roots):
    upward = {m: r & set(PACKAGES) - ALLOWED[package_of(m)] for m, r in roots.items()}
    assert offenders(upward) == {}


def test_imports_are_absolute(names):
    assert offenders({m: {n for n in found if n[0] == "."} for m, found in names.items()}) == {}


def test_playing_and_registering_need_no_torch(roots):
    torch_free = [m for m in roots if package_of(m) in ("envs_registry", "ludic_gym")]
    assert offenders({m: roots[m] & TRAINING_ONLY for m in torch_free}) == {}


def test_learning_leaves_engines_outside(names, roots):
    # ludic_vllm runs inside vLLM, which loads it; a trainer takes its files and its names alone.
    ours = [module for module in names if package_of(module) != "ludic_vllm"]
    engines = {m: roots[m] & NEVER_IN_TRAIN for m in ours}
    engines[BY_VLLM] -= {"vllm"}
    assert offenders(engines) == {}
    inside = {m: {n for n in names[m] if n.startswith(INSIDE_VLLM)} for m in ours}
    assert offenders(inside) == {}


def test_what_a_trainer_imports_at_its_start_needs_no_vllm():
    for name in ("ludic_vllm", "ludic_vllm.files", BY_VLLM):
        needed = imported(SOURCES[name], at_import_time=True)
        assert "vllm" not in {n.partition(".")[0] for n in needed}


@pytest.mark.long
def test_helpers_that_tests_and_benchmarks_import_exist():
    # Programs that are run by hand alone would not be missed by the suite.
    for folder in ("tests", "benchmarks"):
        helpers = {module_name(path).removeprefix(f"{folder}.") for path in programs(folder)}
        helpers = {name.removesuffix(".__init__") for name in helpers}
        own = {name.partition(".")[0] for name in helpers} - set(PACKAGES)
        for path in programs(folder):
            for name in imported(path.read_text()):
                is_there = name in helpers or name.rpartition(".")[0] in helpers
                assert name.partition(".")[0] not in own or is_there, (path, name)


WINGS = ("ludic_train.cluster", "ludic_train.agents", "ludic_gym.audit", "ludic_gym.envs.worlds")
DOORS = ("ludic_train.runs.ends", "ludic_train.commands", "ludic_gym.commands")


def is_in(module: str, folders: tuple[str, ...]) -> bool:
    """True for a module of one of the folders, and for the folder itself."""
    return any(module == folder or module.startswith(f"{folder}.") for folder in folders)


@pytest.mark.parametrize("wing", WINGS)
def test_a_wing_is_reached_through_its_doors_alone(names, wing):
    others = [m for m in names if not is_in(m, (*WINGS, *DOORS))]
    assert offenders({m: {n for n in names[m] if is_in(n, (wing,))} for m in others}) == {}


def test_no_module_needs_itself_for_its_types():
    try:
        TopologicalSorter(module_graph(types=True)).prepare()
    except CycleError as error:
        pytest.fail("circle of types: " + " <- ".join(error.args[1]))


def folder_graph() -> dict[str, set[str]]:
    """`ludic_gym.bench`, ... each with the other folders and single files that it imports."""
    graph: dict[str, set[str]] = {}
    for module, targets in module_graph().items():
        folder = folder_of(module)
        graph.setdefault(folder, set()).update({folder_of(t) for t in targets} - {folder})
    return graph


def folder_of(module: str) -> str:
    """`ludic_gym.bench.report` -> "ludic_gym.bench"."""
    return ".".join(module.split(".")[:2])


@pytest.mark.long
@pytest.mark.parametrize("graph", [module_graph, folder_graph])
def test_nothing_imports_itself_in_a_circle(graph):
    try:
        TopologicalSorter(graph()).prepare()
    except CycleError as error:
        pytest.fail("import cycle: " + " <- ".join(error.args[1]))
