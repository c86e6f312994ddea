"""The HTML file: assets and data in one file, without external resources."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path

from ludic_gym.bench.folder import REQUEST, finite
from ludic_gym.errors import ConfigError
from ludic_gym.view.bench import bench_view
from ludic_gym.view.training import METRICS, training_view
from ludic_gym.view.transcript import JSON, TokenTexts

MOST_RUNS = 2


def view_of(
    folders: Sequence[Path], *, most: int = 10_000, token_texts: TokenTexts | None = None
) -> JSON:
    """The data of the page for a benchmark, for two benchmarks, or for a training run.

    most, token_texts: see `bench_view` and `training_view`.
    Raises ConfigError for any other folder, and for another number of them.

        write_page(Path("view.html"), view_of([Path("results/before"), Path("results/after")]))
    """
    if not 1 <= len(folders) <= MOST_RUNS:
        raise ConfigError(f"name one run, or two to show side by side; got {len(folders)}")
    if all((folder / REQUEST).exists() for folder in folders):
        return bench_view(folders, most=most, token_texts=token_texts)
    if len(folders) == 1 and (folders[0] / METRICS).exists():
        return training_view(folders[0], most=most, token_texts=token_texts)
    names = ", ".join(map(str, folders))
    raise ConfigError(
        f"{names}: no run; name a folder of `ludic train` or of `ludic bench --out`, "
        "or two of the latter"
    )


def page(view: JSON, *, live: bool = False) -> str:
    """The whole page, as HTML.

    view: data of `view_of`. live: True if the page polls its server for changes.
    """
    script, style = asset("view.js"), asset("view.css")
    # The hashes allow exactly this script and this style, so that no text of a run can add another.
    policy = (
        f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'"
    )
    blocks = [_data(name, episodes) for name, episodes in chunks_of(view).items()]
    return asset("view.html").format(
        policy=escape(policy),
        title=escape(view["title"]),
        style=style,
        data="\n".join([_data("data", shell_of(view, live=live)), *blocks]),
        script=script,
    )


def shell_of(view: JSON, *, live: bool) -> JSON:
    """The view without its transcripts, but with their places in the chunks.

    The page parses it when it is opened, and a chunk only when one of its transcripts is.
    """
    runs = [{**run, "chunks": _starts(run["chunks"])} for run in view["runs"]]
    return {**view, "runs": runs, "live": live}


def chunks_of(view: JSON) -> dict[str, JSON]:
    """The chunks of transcripts by name; each is parsed only when one of them is opened.

    The name "chunk-i-j" has the number of the run and of the chunk in it.
    """
    return {
        f"chunk-{i}-{j}": chunk["episodes"]
        for i, run in enumerate(view["runs"])
        for j, chunk in enumerate(run["chunks"])
    }


def write_page(path: Path, view: JSON) -> None:
    """Write the page atomically, into a folder that is created if needed.

    path: of the HTML file, which is replaced if it exists.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # A browser that reloads during the write must not see half a page.
    new = path.with_suffix(".new")
    new.write_text(page(view), encoding="utf-8")
    os.replace(new, path)


def as_json(value: JSON) -> str:
    r"""JSON for a script element, which no text in it can end.

    nan and infinities become null: JavaScript's parser rejects them.

    >>> as_json({"text": "</script>", "rate": float("nan")})
    '{"text": "\\u003c/script\\u003e", "rate": null}'
    """
    # Not HTML's escapes, which a script element does not decode; both characters occur in JSON
    # within strings only, where JSON's own escapes are valid.
    return json.dumps(finite(value)).replace("<", "\\u003c").replace(">", "\\u003e")


@cache
def asset(name: str) -> str:
    """A file of the page, by its name in the folder `assets`; read once per process."""
    return files("ludic_gym.view").joinpath("assets", name).read_text(encoding="utf-8")


def _starts(chunks: Sequence[JSON]) -> JSON:
    return [{"start": chunk["start"], "count": len(chunk["episodes"])} for chunk in chunks]


def _data(name: str, value: JSON) -> str:
    return f'<script type="application/json" id="{name}">{as_json(value)}</script>'


def _digest(text: str) -> str:
    """The hash of an inline script or style for a content security policy."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
