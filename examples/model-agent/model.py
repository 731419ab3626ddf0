#!/usr/bin/env python3
"""Simulates a language model: a small server with the part of the OpenAI protocol that this example
needs. It needs only Python's standard library.

    model.py DIRECTORY

Files in the directory control the server:

    port     the port of the server, which writes it
    asked    every request, answered or refused, one JSON object a line; the server writes it
    pace     maximum number of lines that the server may have sent; without the file, all
    limit    while it exists, every request is refused with 429; the number of seconds of Retry-After
"""

import json
import pathlib
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TEXT = [
    "A dormouse weighs as much as four sheets of paper.",
    "It sleeps from October to May.",
    "Now and then it wakes, looks around, and sleeps on.",
    "Nobody has to stay up for it.",
    "What it needs to remember lies beside it, in plain hazelnuts.",
    "A fox that comes by does not spoil its plans.",
    "In spring it goes on where it was in autumn.",
    "It is not in a hurry, and it is never late.",
]

place = pathlib.Path(sys.argv[1])
one_at_a_time = threading.Lock()


def read(name):
    try:
        return int((place / name).read_text())
    except (FileNotFoundError, ValueError):
        return None


def answer_to(messages):
    """Yields the lines of the requested part that the conversation does not contain yet, each with
    the last wish of the operator."""
    talk = "\n".join(message["content"] for message in messages)
    part, parts = (re.findall(r"Write part (\d+) of (\d+)", talk) or [(1, 1)])[-1]
    end = len(TEXT) * int(part) // int(parts)
    wishes = re.findall(r"The operator says: (.*)", talk)
    heeded = f" ({wishes[-1]})" if wishes else ""
    written = [int(number) for number in re.findall(r"^(\d+)\. ", talk, re.MULTILINE)]
    for number in range(max(written, default=0) + 1, end + 1):
        while (pace := read("pace")) is not None and pace < number:
            time.sleep(0.02)
        yield f"{number}. {TEXT[number - 1]}{heeded}\n"


class Model(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # with chunks, so that clients notice an incomplete answer

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        limit = read("limit")
        with one_at_a_time, open(place / "asked", "a") as asked:
            asked.write(json.dumps({"refused": limit is not None, **request}) + "\n")
        if self.path != "/v1/chat/completions":
            self.whole(404, {"error": {"message": f"no such path: {self.path}"}})
        elif limit is not None:
            message = f"Rate limit reached for {request['model']}. Please try again in {limit}s."
            error = {"message": message, "type": "tokens", "code": "rate_limit_exceeded"}
            self.whole(429, {"error": error}, {"Retry-After": str(limit)})
        elif request.get("stream"):
            self.stream(request)
        else:
            text = "".join(answer_to(request["messages"]))
            message = {"role": "assistant", "content": text}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            usage = self.usage(request, text)
            self.whole(200, {**self.head(request, "chat.completion"), "choices": [choice], "usage": usage})

    def whole(self, status, body, headers={}):
        body = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": len(body), **headers}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body)

    def stream(self, request):
        """Sends events: one for each line of the text, the finish reason, the usage, and the end."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        said = ""
        head = self.head(request, "chat.completion.chunk")
        for piece in answer_to(request["messages"]):
            said += piece
            self.event({**head, "choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]})
        self.event({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        if request.get("stream_options", {}).get("include_usage"):
            self.event({**head, "choices": [], "usage": self.usage(request, said)})
        self.chunk("data: [DONE]\n\n")
        self.chunk("")

    def event(self, data):
        self.chunk(f"data: {json.dumps(data)}\n\n")

    def chunk(self, text):
        data = text.encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def head(self, request, kind):
        return {"id": "chatcmpl-1", "object": kind, "created": int(time.time()), "model": request["model"]}

    def usage(self, request, said):
        """Counts each word as a token."""
        read = sum(len(message["content"].split()) for message in request["messages"])
        wrote = len(said.split())
        return {"prompt_tokens": read, "completion_tokens": wrote, "total_tokens": read + wrote}

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, address):
        """Ignores closed connections: this example ends clients during an answer."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, address)


server = Server(("127.0.0.1", 0), Model)
(place / "port.new").write_text(str(server.server_port))
(place / "port.new").rename(place / "port")
server.serve_forever()
