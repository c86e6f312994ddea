"""Server of the page on this machine, with updates during a run."""

from __future__ import annotations

import json
import webbrowser
from collections.abc import Callable, Sequence
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from ludic_gym.errors import ConfigError
from ludic_gym.view.page import as_json, chunks_of, page, shell_of
from ludic_gym.view.transcript import JSON

Version = tuple[tuple[str, int, int], ...]


def serve(
    current: Callable[[], JSON], folders: Sequence[Path], *, port: int = 0, open_browser: bool
) -> None:
    """Serve the view of `current` until Ctrl-C; it is called again after a file has changed.

    current: makes the data of the page, see `view_of`.
    folders: their JSON files are watched.
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

    "/" is the page, "/data.json" its data after a change. Requests whose Host is another name than
    127.0.0.1 or localhost get status 403, other paths 404.
    Raises ConfigError for a port in use.
    """

    # Browsers poll every two seconds, and a large run takes longer than that to read.
    @lru_cache(maxsize=1)
    def made(version: Version) -> tuple[bytes, bytes]:
        view = current()
        return page(view, live=True).encode(), _news(view, version).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.headers.get("Host", "").rsplit(":", 1)[0] not in {"127.0.0.1", "localhost"}:
                # DNS rebinding: a foreign page could read the run by another name of this address.
                self.send_error(403)
                return
            whole, news = made(version_of(folders))
            routes = {
                "/": ("text/html; charset=utf-8", whole),
                "/data.json": ("application/json", news),
            }
            # Fixed routes: no path of a request ever reaches the file system.
            if self.path not in routes:
                self.send_error(404)
                return
            kind, body = routes[self.path]
            self.send_response(200)
            self.send_header("Content-Type", kind)
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


def version_of(folders: Sequence[Path]) -> Version:
    """Times and sizes of the folders' files, which differ after any change.

    Each is (path, modification time in nanoseconds, bytes).
    """
    found = sorted(path for folder in folders for path in folder.glob("*.json*"))
    stats = [(str(path), path.stat()) for path in found]
    return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats)


def _news(view: JSON, version: Version) -> str:
    """The data of the page as JSON, with a version by which the page sees a change."""
    shell, chunks = shell_of(view, live=True), chunks_of(view)
    return as_json({"version": json.dumps(version), "view": shell, "chunks": chunks})
