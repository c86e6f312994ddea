"""A chat server on a thread of its own, for commands that run their own event loop."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODELS = {"data": [{"id": "small"}, {"id": "large"}]}


class ChatServer(ThreadingHTTPServer):
    """respond: (path, headers, body) -> (status, JSON); the body is None for a GET.

    requests: the bodies of all POST requests, in order.
    """

    daemon_threads = True

    def __init__(self, respond):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.respond = respond
        self.requests = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/v1"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self._send(None)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(body)
        self._send(body)

    def _send(self, body):
        status, value = self.server.respond(self.path, self.headers, body)
        text = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *args):
        pass


@contextmanager
def chat_server(respond):
    server = ChatServer(respond)
    # It looks that often, in seconds, whether it is to stop.
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def completion(text, model="small", **more):
    """A response of the chat route."""
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 7, "completion_tokens": 3}
    return {"model": model, "choices": [choice], "usage": usage, **more}


def answering(text="5", model="small"):
    """A server that has two models and gives one text."""

    def respond(path, headers, body):
        return (200, MODELS) if body is None else (200, completion(text, model))

    return respond


def refusing(status, error):
    """A server that lists its models and refuses every other request."""

    def respond(path, headers, body):
        return (200, MODELS) if body is None else (status, error)

    return respond
