"""Public functions that take a path take it as text too."""

import inspect

import pytest

import ludic_gym as lg

# Rows of an environment that its package brings along: never written by a user.
OURS = {"load_rows", "locate", "File"}


def public_functions():
    lt = pytest.importorskip("ludic_train", reason="needs torch")
    for package in (lg, lt):
        for name in sorted(set(package.__all__) - OURS):
            found = getattr(package, name)
            yield name, found
            if inspect.isclass(found):
                members = {k: v for k, v in vars(found).items() if not k.startswith("_")}
                yield from ((f"{name}.{k}", v) for k, v in members.items() if inspect.isfunction(v))


def test_every_path_may_be_text():
    for name, found in public_functions():
        # Checked by hand: the settings make a Path of it.
        if not callable(found) or name == "RunConfig":
            continue
        try:
            parameters = inspect.signature(found).parameters.values()
        except ValueError:
            continue
        for parameter in parameters:
            kind = str(parameter.annotation)
            assert "Path" not in kind or "str" in kind or "Callable" in kind, (name, parameter)


def test_text_paths_work(tmp_path, monkeypatch):
    lt = pytest.importorskip("ludic_train", reason="needs torch")
    monkeypatch.chdir(tmp_path)
    with lg.open_transcripts("eval.jsonl", policy="x"):
        pass
    assert list(lg.read_scores("eval.jsonl")) == []
    lg.write_page("p/page.html", {"title": "", "runs": [], "differences": []})
    assert (tmp_path / "p" / "page.html").is_file()
    (tmp_path / "run.toml").write_text('envs = ["ludic/Countdown-v0"]\n')
    recipe, _ = lt.read_recipe("run.toml", out="runs/x")
    assert recipe.defaults.changed(out="runs/y").out.name == "y"
