"""The HTML file, without external resources, and a server that updates it during a run."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import webbrowser
from collections.abc import Callable, Collection, Sequence
from functools import cache, lru_cache
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path

from ludic_gym.bench.folder import REQUEST, finite
from ludic_gym.errors import ConfigError
from ludic_gym.recorder import ROLLOUTS
from ludic_gym.view.runs import METRICS, BenchRun, bench_run, differences, training_run
from ludic_gym.view.transcript import JSON, TokenTexts

# In the order in which they run: they share one scope.
SCRIPTS = (
    "dom.js", "data.js", "state.js", "table.js", "results.js", "settings.js", "curves.js",
    "episodes.js", "list.js", "transcript.js", "main.js",
)  # fmt: skip
CHARTS, CHART_STYLE, CHART_LICENCE = "uPlot.iife.min.js", "uPlot.min.css", "uPlot.LICENSE.txt"
WATCHED = ("*.json*", f"{ROLLOUTS}/*.gz")
# Of every path that is served.
KINDS = {
    "/": "text/html; charset=utf-8",
    "/data.json": "application/json",
    "/version": "text/plain",
}


def view_of(
    folders: Sequence[Path | str],
    *,
    most: int = 50_000,
    token_texts: TokenTexts | None = None,
    updates: Collection[int] = (),
) -> JSON:
    """The data of the page for any number of benchmarks and training runs.

    folders: of runs, or folders that hold some, which stand for these.
    most, token_texts, updates: see `bench_run` and `training_run`.
    Returns "title", "runs" and "differences" (between the benchmarks).
    Raises ConfigError for any other folder, and for none.

        write_page("view.html", view_of(["results/before", "results/after"]))
    """
    runs = run_folders([Path(folder) for folder in folders])
    names = run_names(runs)
    shown: list[JSON] = []
    benches: dict[int, BenchRun] = {}
    for i, (folder, name) in enumerate(zip(runs, names, strict=True)):
        if (folder / REQUEST).exists():
            benches[i] = bench_run(folder, name=name, most=most, token_texts=token_texts)
            shown.append(benches[i].data)
        else:
            shown.append(
                training_run(folder, name=name, most=most, token_texts=token_texts, updates=updates)
            )
    places = list(benches)
    pairs = [
        {**pair, "first": places[pair["first"]], "second": places[pair["second"]]}
        for pair in differences(list(benches.values()))
    ]
    title = " and ".join(names) if len(names) < 3 else f"{names[0]} and {len(names) - 1} others"
    return {"title": title, "runs": shown, "differences": pairs}


def run_folders(folders: Sequence[Path]) -> list[Path]:
    """The folders of runs, each once; a folder that holds some stands for these, by name.

    Raises ConfigError for a folder that is no run and holds none, and without folders.
    """
    if not folders:
        raise ConfigError("name a run: a folder of `ludic train` or of `ludic bench --out`")
    runs: dict[Path, Path] = {}
    for folder in folders:
        inside = [folder] if _is_run(folder) else sorted(filter(_is_run, folder.glob("*")))
        if not inside:
            raise ConfigError(
                f"{folder}: no run; name folders of `ludic train` or of `ludic bench --out`, "
                "or a folder that holds some"
            )
        runs.update({run.resolve(): run for run in inside})
    return list(runs.values())


def run_names(folders: Sequence[Path]) -> list[str]:
    """The last parts of the paths, as many of each as tell them apart.

    >>> run_names([Path("a/x"), Path("b/x"), Path("c/y")])
    ['a/x', 'b/x', 'y']
    """
    parts = [folder.resolve().parts for folder in folders]
    lengths = [1] * len(folders)
    while True:
        names = ["/".join(p[-n:]) for p, n in zip(parts, lengths, strict=True)]
        equal = [i for i, name in enumerate(names) if names.count(name) > 1]
        if not equal:
            return names
        for i in equal:
            lengths[i] += 1


def _is_run(folder: Path) -> bool:
    return (folder / REQUEST).exists() or (folder / METRICS).exists()


def page(view: JSON, *, version: str = "") -> str:
    """The whole page, as HTML.

    view: data of `view_of`. version: of a served page, which polls its server for another one; ""
        for a file.
    """
    # Every page is a copy of the library, which its licence has to come with.
    charts = f"/*\n{asset(CHART_LICENCE)}\n*/\n{asset(CHARTS)}"
    scripts = [charts, "".join(asset(name) for name in SCRIPTS)]
    style = asset(CHART_STYLE) + asset("view.css")
    # Hashes, so that no text of a run can add another script.
    policy = (
        f"default-src 'none'; script-src {' '.join(map(_digest, scripts))}; "
        f"style-src {_digest(style)}; connect-src 'self'; base-uri 'none'; form-action 'none'"
    )
    blocks = [
        f'<script type="text/plain" id="{name}">{data}</script>'
        for name, data in chunks_of(view).items()
    ]
    shell = as_json(shell_of(view, version))
    return asset("view.html").format(
        policy=escape(policy),
        title=escape(view["title"]),
        style=style,
        data="\n".join([f'<script type="application/json" id="data">{shell}</script>', *blocks]),
        charts=charts,
        script=scripts[1],
    )


def shell_of(view: JSON, version: str = "") -> JSON:
    """The view without its transcripts, but with their places in the chunks.

    The page parses it when it is opened, and a chunk only when one of its transcripts is.
    """
    runs = [
        {**run, "chunks": [{name: c[name] for name in ("start", "count")} for c in run["chunks"]]}
        for run in view["runs"]
    ]
    return {**view, "runs": runs, "version": version}


def chunks_of(view: JSON) -> dict[str, str]:
    """The data of the chunks of transcripts by name, see `transcript.chunks`.

    The name "chunk-i-j" has the number of the run and of the chunk in it.
    """
    return {
        f"chunk-{i}-{j}": chunk["data"]
        for i, run in enumerate(view["runs"])
        for j, chunk in enumerate(run["chunks"])
    }


def write_page(path: Path | str, view: JSON) -> None:
    """Write the page atomically, into a folder that is created if needed.

    path: of the HTML file, which is replaced if it exists.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # A browser that reloads during the write must not see half a page.
    new = path.with_suffix(".new")
    new.write_text(page(view), encoding="utf-8")
    os.replace(new, path)


def as_json(value: JSON) -> str:
    r"""JSON for a script element, which no text in it can end.

    nan and infinities become null: JavaScript's parser rejects them.

    >>> as_json({"text": "</script>", "rate": float("nan")})
    '{"text":"\\u003c/script\\u003e","rate":null}'
    """
    # Not HTML's escapes, which a script element does not decode; both characters occur in JSON
    # within strings only, where JSON's own escapes are valid.
    return (
        json.dumps(finite(value), separators=(",", ":"))
        .replace("<", "\\u003c")
        .replace(">", "\\u003e")
    )


@cache
def asset(name: str) -> str:
    """A file of the page, by its name in the folder `assets`; read once per process."""
    return files("ludic_gym.view").joinpath("assets", name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """The hash of an inline script or style for a content security policy."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def serve(
    current: Callable[[], JSON], folders: Sequence[Path], *, port: int = 0, open_browser: bool
) -> None:
    """Serve the view of `current` until Ctrl-C; it is called again after a file has changed.

    current: makes the data of the page, see `view_of`.
    folders: their JSON files are watched, or those of the runs in them.
    port: 0 for any free one; the address is printed.
    open_browser: open the address in the browser.
    Raises ConfigError for a port in use, and at once the errors of `current`.
    """
    # Called in advance: in the handler, an error would be a failed request and no message.
    current()
    with make_server(current, folders, port=port) as server:
        url = f"http://127.0.0.1:{server.server_address[1]}/"
        print(f"{url} shows {', '.join(map(str, folders))}; Ctrl-C stops", flush=True)
        if open_browser:
            webbrowser.open(url)
        server.serve_forever()


def make_server(
    current: Callable[[], JSON], folders: Sequence[Path], *, port: int = 0
) -> ThreadingHTTPServer:
    """The server, on the loopback address only; `serve_forever` runs it.

    "/" is the page, "/version" a text that differs after a change of the runs, "/data.json" the
    page's data then. Requests whose Host is another name than 127.0.0.1 or localhost get status
    403, other paths 404.
    Raises ConfigError for a port in use.
    """

    def version_of_runs() -> str:
        # Of the names, modification times and sizes of all their files.
        runs = run_folders(folders)
        watched = sorted(path for folder in runs for name in WATCHED for path in folder.glob(name))
        stats = [(str(path), path.stat()) for path in watched]
        state = [(name, stat.st_mtime_ns, stat.st_size) for name, stat in stats]
        return hashlib.sha256(repr(state).encode()).hexdigest()

    # A large run takes longer to read than a browser waits before it polls again.
    @lru_cache(maxsize=1)
    def made(version: str) -> dict[str, bytes]:
        view = current()
        news = {"view": shell_of(view, version), "chunks": chunks_of(view)}
        return {"/": page(view, version=version).encode(), "/data.json": as_json(news).encode()}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.headers.get("Host", "").rsplit(":", 1)[0] not in {"127.0.0.1", "localhost"}:
                # DNS rebinding: a foreign page could read the run by another name of this address.
                self.send_error(403)
                return
            # Fixed routes: no path of a request ever reaches the file system.
            if self.path not in KINDS:
                self.send_error(404)
                return
            version = version_of_runs()
            # A large run is neither read nor sent before it has changed.
            body = version.encode() if self.path == "/version" else made(version)[self.path]
            self.send_response(200)
            self.send_header("Content-Type", KINDS[self.path])
            self.send_header("Content-Length", str(len(body)))
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: the page polls every two seconds."""

    try:
        return ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except OSError as error:
        raise ConfigError(f"cannot serve on port {port}: {error}; name another --port") from error
