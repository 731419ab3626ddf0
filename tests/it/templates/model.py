"""A stand-in for a language model, in both dialects: it answers as the path of the request says.

    model.py DIRECTORY

It writes its port to DIRECTORY/port, and each request with its headers to DIRECTORY/asked, a JSON object a line.
"""

import json
import pathlib
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

place = pathlib.Path(sys.argv[1])
OPENAI = {
    "choices": [{"message": {"role": "assistant", "content": "a dormouse sleeps\nand wakes"}}],
    "usage": {"prompt_tokens": 1200, "completion_tokens": 30},
}
ANTHROPIC = {
    "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "it sleeps"}],
    "usage": {"input_tokens": 7, "output_tokens": 3},
}


class Model(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with open(place / "asked", "a") as asked:
            asked.write(json.dumps({"path": self.path, "headers": dict(self.headers), "body": json.loads(body)}) + "\n")
        key = (self.headers.get("x-api-key") or self.headers.get("Authorization") or "").split(" ")[-1]
        soon = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 3600))
        answers = {
            "/openai": (200, OPENAI, {}),
            "/anthropic": (200, ANTHROPIC, {}),
            "/echo": (200, {"choices": [{"message": {"content": json.loads(body)["messages"][-1]["content"]}}]}, {}),
            "/limit": (429, {"error": {"message": "slow down"}}, {"Retry-After": "1800"}),
            "/limit-date": (429, {"error": "slow down"}, {"retry-after": soon}),
            "/limit-odd": (429, b"\x00\xff{", {"Retry-After": "$(touch pwned); 5 minutes"}),
            "/overloaded": (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, {}),
            "/down": (500, b"<html>\x1b[31mInternal Server Error</html>", {}),
            "/key": (401, {"error": {"message": f"wrong key {key}"}}, {}),
            "/moved": (307, b"", {"Location": "/openai"}),
            "/nothing": (200, b"", {}),
            "/cut": (200, b'{"choices": [{"mess', {}),
            "/list": (200, [1, 2], {}),
            "/null": (200, {"choices": [{"message": {"content": None}}], "usage": {"prompt_tokens": "many"}}, {}),
            "/odd-usage": (200, {**OPENAI, "usage": {"prompt_tokens": -5, "completion_tokens": "x"}}, {}),
        }
        status, answer, headers = answers[self.path]
        answer = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(answer)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
(place / "port.new").write_text(str(server.server_port))
(place / "port.new").rename(place / "port")
server.serve_forever()
