import subprocess
import sys

PROGRAM = """
import json, threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from ludic_gym.clients.openai import OpenAIChatClient
from ludic_gym.policies.chat import ChatPolicy

class Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        message = {"role": "assistant", "content": "hello"}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        body = json.dumps({"choices": choices}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass

server = HTTPServer(("127.0.0.1", 0), Answering)
threading.Thread(target=server.serve_forever, daemon=True).start()

def main():
    client = OpenAIChatClient(f"http://127.0.0.1:{server.server_port}/v1", "m")
    print(ChatPolicy(client)("hi"))

main()
"""


def test_a_program_of_plain_calls_ends_without_a_complaint():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("hello\n", "", 0)
