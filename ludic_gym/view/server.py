"""The page from a server on this machine, which tells it what is new in the run."""

from __future__ import annotations

import json
import webbrowser
from collections.abc import Callable, Sequence
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from ludic_gym.errors import ConfigError
from ludic_gym.view.bench import as_json
from ludic_gym.view.page import page
from ludic_gym.view.transcript import JSON

Version = tuple[tuple[str, int, int], ...]


def serve(
    current: Callable[[], JSON], folders: Sequence[Path], *, port: int = 0, open_browser: bool
) -> None:
    """Serve what `current` gives until Ctrl-C; made again where a file of the folders changed.

    Raises ConfigError for a port that is taken, and what `current` raises, at once.
    """
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
    """The server, on this machine's own address alone."""

    @lru_cache(maxsize=1)
    def made(version: Version) -> tuple[bytes, bytes]:
        view = current()
        return page(view, live=True).encode(), _news(view, version).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.headers.get("Host", "").rsplit(":", 1)[0] not in {"127.0.0.1", "localhost"}:
                # Another name for this address is how a page elsewhere would read the run.
                self.send_error(403)
                return
            whole, news = made(version_of(folders))
            answers = {
                "/": ("text/html; charset=utf-8", whole),
                "/data.json": ("application/json", news),
            }
            if self.path not in answers:
                self.send_error(404)
                return
            kind, body = answers[self.path]
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: the page asks every two seconds."""

    try:
        return ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except OSError as error:
        raise ConfigError(f"cannot serve on port {port}: {error}; name another --port") from error


def version_of(folders: Sequence[Path]) -> Version:
    """What changes as soon as a file of the folders does."""
    found = sorted(path for folder in folders for path in folder.glob("*.json*"))
    stats = [(str(path), path.stat()) for path in found]
    return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats)


def _news(view: JSON, version: Version) -> str:
    chunks = {
        f"chunk-{i}-{j}": chunk["episodes"]
        for i, run in enumerate(view["runs"])
        for j, chunk in enumerate(run["chunks"])
    }
    starts = [
        {
            **run,
            "chunks": [{"start": c["start"], "count": len(c["episodes"])} for c in run["chunks"]],
        }
        for run in view["runs"]
    ]
    said = {**view, "runs": starts, "live": True}
    return as_json({"version": json.dumps(version), "view": said, "chunks": chunks})
