"""Server of the page on this machine, with updates during a run."""

from __future__ import annotations

import hashlib
import webbrowser
from collections.abc import Callable, Sequence
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from ludic_gym.errors import ConfigError
from ludic_gym.view.page import as_json, chunks_of, page, run_folders, shell_of
from ludic_gym.view.transcript import JSON

# Of every path that is served.
KINDS = {
    "/": "text/html; charset=utf-8",
    "/data.json": "application/json",
    "/version": "text/plain",
}


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
            version = version_of(run_folders(folders))
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


def version_of(folders: Sequence[Path]) -> str:
    """A text that differs after any change of the folders' files.

    It is a hash of their names, modification times and sizes.
    """
    found = sorted(path for folder in folders for path in folder.glob("*.json*"))
    stats = [(str(path), path.stat()) for path in found]
    state = [(name, stat.st_mtime_ns, stat.st_size) for name, stat in stats]
    return hashlib.sha256(repr(state).encode()).hexdigest()
