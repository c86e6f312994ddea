"""Generated pages of the documentation: the environments, the reference, the migration page."""

import ast
import asyncio
import inspect
import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import data_sets_page
import environment_pages
import published_page
import pytest
import reference_pages

import ludic_gym as lg
from envs_registry.catalog import ADAPTERS, CATALOG
from envs_registry.data_sets import DATA_SETS
from envs_registry.published import PUBLISHED
from envs_registry.scores import CARDS
from envs_registry.speeds import SPEEDS
from ludic_gym.former_names import FORMER

ROOT = Path(__file__).parents[1]
MIGRATION = (ROOT / "docs" / "guides" / "migration.md").read_text(encoding="utf-8")


def entry(id):
    (found,) = [entry for entry in CATALOG if entry.id == id]
    return found


def test_the_page_of_an_environment_has_prompt_transcript_arguments_and_scores():
    page = environment_pages.environment_page(entry("ludic/GuessTheNumber-v0"))
    assert "- Success of random play: 0.070" in page
    assert "| oracle | 1.000 | 0.981 to 1.000 | 200 |" in page
    assert "## System prompt\n\n````text\nFind" in page
    assert "\n> 50\n\n" in page
    assert "(reward 1, success True)\n````" in page
    assert "::: ludic_gym.envs.games.guessing.GuessTheNumberEnv" in page
    assert '| `"test"` | the others, which no seed gives in `"train"` |' in page
    page = environment_pages.environment_page(entry("ludic/ConnectFour-v0"))
    assert "## Splits" not in page
    assert "- Reason for no splits: all games begin alike" in page
    assert "- Source and licence of the tasks: generated, Apache-2.0" in page


def test_the_page_of_a_dataset_names_its_splits():
    page = environment_pages.environment_page(entry("ludic/MATH-v0"))
    assert '| `"test"` | split `test` of `HuggingFaceH4/MATH-500` |' in page
    assert '| `"train"` | split `train` of `qwedsacf/competition_math` |' in page


def test_the_page_of_an_environment_has_the_runs_that_trained_in_it():
    runs = json.loads((ROOT / "benchmarks" / "results" / "trained.json").read_text())
    assert runs
    for run in runs:
        page = environment_pages.environment_page(entry(run["id"]))
        (picture,) = re.findall(r"\(\.\./\.\./(img/trained/\w+\.svg)\)", page)
        assert (ROOT / "docs" / picture).is_file()
        (_, first, *_), (_, last, low, _) = run["curve"][0], run["curve"][-1]
        assert f"| {run['label']} | {run['seed']} | {first:.3f} |" in page
        assert f"| {last:.3f} ({low:.2f} to" in page
        # A run that did not rise above its start, beyond chance, is no proof.
        assert low > first
    assert "## Training" not in environment_pages.environment_page(entry("ludic/Game2048-v0"))


def test_every_page_has_the_scores_and_intervals_of_its_card():
    for entry in CATALOG:
        card, section = CARDS[entry.id], environment_pages.environment_page(entry)
        for player, (wins, trials) in card.scores.items():
            low, high = lg.wilson_interval(wins, trials)
            row = f"| {player} | {wins / trials:.3f} | {low:.3f} to {high:.3f} | {trials} |"
            assert row in section
        for model, (read, written) in card.tokens.items():
            assert f"{model}: {read:,} + {written:,} tokens per episode." in section
        for model, failed in card.outgrown.items():
            note = f"did not fit into its context in {failed} of {card.scores[model][1]} episodes."
            assert (note in section) == (failed > 0)


def test_a_long_transcript_leaves_turns_out():
    page = environment_pages.environment_page(entry("ludic/Game2048-v0"))
    assert re.search(r"\n\n\.\.\. \d+ further turns \.\.\.\n\n", page)


def test_an_environment_without_a_sandbox_has_a_page_without_a_transcript(monkeypatch):
    def no_sandbox(*args, **kwargs):
        raise lg.NoSandbox("none")

    monkeypatch.setattr("ludic_gym.envs.core.code.CodeEnv.reset", no_sandbox)
    page = environment_pages.environment_page(entry("ludic/PythonFunctions-v0"))
    assert "has no sandbox" in page
    assert "## Rules and arguments" in page


def test_the_index_has_every_environment_and_its_scores():
    page = environment_pages.index()
    assert all(
        f"| [`{entry.id}`]({environment_pages.file_name(entry)}) |" in page for entry in CATALOG
    )
    assert "| Gymnasium, AEC, Parallel | 0.300 | 0.500 | 0.000 |" in page


def test_speeds_are_of_environments_that_exist_over_that_of_tic_tac_toe():
    assert SPEEDS.keys() <= {entry.id for entry in CATALOG}
    assert min(SPEEDS.values()) > 0
    assert SPEEDS["ludic/TicTacToe-v0"] == 1.0


def test_every_environment_of_another_package_is_listed():
    page = environment_pages.other_packages()
    assert all(f"`{entry.id}`" in page for entry in ADAPTERS)


def test_every_published_benchmark_has_its_rule_and_a_score_with_a_source():
    page = published_page.page()
    for entry in PUBLISHED.values():
        assert f"\n## {entry.name}\n" in page
        assert f"- Rule: {entry.rule}\n" in page
    assert "| DeepSeek-R1: 84.0, arXiv:2501.12948 |" in page
    assert "- Sampling: temperature 0, top_p 1, 2,048 tokens (the publisher's program)" in page


def test_every_data_set_has_its_split_columns_grader_and_licence():
    lines = data_sets_page.page().splitlines()
    table = lines[lines.index("|---|---|---|---|---|---|---|") + 1 :]
    assert [line.split(" | ")[0] for line in table] == [f"| {s.title}" for s in DATA_SETS.values()]
    assert all(len(line.split(" | ")) == 7 for line in table)
    (hellaswag,) = (line for line in table if "hellaswag" in line)
    assert hellaswag == (
        "| HellaSwag | `Rowan/hellaswag` | validation | {ctx} Which of these comes next?, endings, "
        "label | `ludic/MultipleChoice-v0` | the letter of the right choice | MIT |"
    )


def test_a_reference_page_has_each_name_of_its_topic_with_a_summary_in_the_index():
    pages = dict(reference_pages.pages())
    assert "::: ludic_gym.policies.chat.ChatPolicy\n" in pages["reference/ludic_gym/policies.md"]
    line = "| [`lg.end`][ludic_gym.envs.core.base.end] | The last turn of an episode, as"
    assert line in pages["reference/ludic_gym/index.md"]


def entry_points():
    """Every class of an environment, as "module.Class"."""
    points = {point for entry in (*CATALOG, *ADAPTERS) for point in (entry.gym, entry.aec) if point}
    return {point.replace(":", ".") for point in points}


def test_the_reference_names_every_public_name():
    texts = [text for _, text in reference_pages.pages()]
    named = {name for text in texts for name in re.findall(r"^::: ([\w.]+)$", text, re.MULTILINE)}
    assert named
    for package in reference_pages.PACKAGES:
        names = reference_pages.public_names(package)
        assert {f"{module}.{name}" for module, name in names} - named == set()


@pytest.mark.slow
def test_the_site_has_a_page_per_environment_and_an_entry_per_public_name(tmp_path):
    if find_spec("mkdocs") is None or find_spec("mkdocstrings") is None:
        pytest.skip("the site needs mkdocs: pip install 'ludic-gym[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir"]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        [*command, str(tmp_path)], cwd=ROOT, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    for entry in CATALOG:
        page = tmp_path / environment_pages.FOLDER / Path(environment_pages.file_name(entry)).stem
        assert entry.id in (page / "index.html").read_text(encoding="utf-8")
    reference = [
        path.read_text(encoding="utf-8") for path in (tmp_path / "reference").rglob("*.html")
    ]
    anchors = {anchor for text in reference for anchor in re.findall(r'id="([\w.]+)"', text)}
    assert entry_points() - anchors == set()
    for package in reference_pages.PACKAGES:
        names = reference_pages.public_names(package)
        assert {f"{module}.{name}" for module, name in names} - anchors == set()


def migration_names():
    """The names of ours on the migration page, such as ("lt", "grpo")."""
    named = set(re.findall(r"\b(lg|lt)\.(\w+)", MIGRATION))
    return sorted((package, name) for package, name in named if name not in FORMER)


def migration_calls():
    """Calls of ours in its examples, as (package, name, number of arguments, keywords)."""
    # Programs run by themselves, and those of the specification are not ours.
    tables = re.sub(r"^```.*?^```$", "", MIGRATION, flags=re.MULTILINE | re.DOTALL)
    for code in re.findall(r"`([^`]+)`", tables):
        try:
            tree = ast.parse(code.replace(": ...", ": pass"))
        except SyntaxError:
            continue
        for node in ast.walk(tree):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="lg" | "lt" as package), attr=name)
                ):
                    keywords = {word.arg: None for word in node.keywords}
                    yield package, name, len(node.args), keywords


def library(short):
    if short == "lt":
        return pytest.importorskip("ludic_train", reason="ludic_train needs torch")
    return lg


@pytest.mark.parametrize(("package", "name"), migration_names())
def test_every_name_of_ours_on_the_migration_page_exists(package, name):
    assert hasattr(library(package), name)


def test_every_call_on_the_migration_page_has_arguments_that_exist():
    calls = list(migration_calls())
    assert len(calls) > 30
    for package, name, count, keywords in calls:
        found = getattr(library(package), name)
        inspect.signature(found).bind_partial(*[None] * count, **keywords)


def test_the_defaults_of_the_migration_page_are_those_of_the_library():
    lt = library("lt")
    rows = {line.split("|")[1].strip(): line for line in MIGRATION.splitlines() if "|" in line}
    clip, adamw = lt.grpo().loss, lt.AdamW()
    facts = {
        "temperature": (lg.Sampling().temperature,),
        "clip of `grpo`": (clip.clip_low, clip.clip_high),
        "bound of `CISPOLoss`": (lt.CISPOLoss().high,),
        "weight decay": (adamw.weight_decay,),
        "betas": adamw.betas,
        "reward of a reply without an action": tuple(
            lg.xml_tag_parser("move")(text).reward for text in ("B2", "<move>B2</move>")
        ),
    }
    for name, numbers in facts.items():
        ours = re.findall(r"[\d.]+", rows[name].split("|")[3])
        assert tuple(map(float, ours)) == numbers, name
    assert lt.ReinforceLoss().max_ratio is None


@pytest.mark.parametrize(("opponent", "rewards"), [("random", {-1.0, 1.0}), ("perfect", {-1.0})])
def test_the_rewards_of_tic_tac_toe_are_those_of_the_migration_page(opponent, rewards):
    tasks = lg.bench_tasks("ludic/TicTacToe-v0", kwargs={"opponent": opponent}, episodes=60)
    scores = []
    asyncio.run(lg.run_bench(tasks, lg.RandomPolicy, on_episode=lambda e: scores.append(e)))
    ends = {(e.rollouts[0].steps[-1].info["outcome"], e.rollouts[0].total_reward) for e in scores}
    assert ends <= {("win", 1.0), ("loss", -1.0), ("draw", 0.0)}
    assert {reward for _, reward in ends} >= rewards


def test_every_flag_of_ours_on_the_migration_page_exists():
    text = (ROOT / "examples" / "fsdp2_training" / "train_math_fsdp2.py").read_text()
    known = {f"--{n.replace('_', '-')}" for n in re.findall(r"^    (\w+): .+ = .+,$", text, re.M)}
    known |= {f"--{name.replace('_', '-')}" for name in library("lt").RunConfig(out="x").flat()}
    section = MIGRATION.split("## Flags of the FSDP2 command")[1].split("## ")[0]
    ours = [line.split("|")[2] for line in section.splitlines() if line.startswith("| `--")]
    assert len(ours) > 10
    for flag in re.findall(r"--[a-z-]+", " ".join(ours)):
        # Of `ludic train` beside the settings of a run.
        assert flag in known | {"--requests", "--env-kwargs"}, flag
