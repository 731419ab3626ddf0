"""Simulates a language model that calls tools: its answer depends on the number of results in the request."""

import http.server
import json
import pathlib
import sys

CALLS = [("write_note", {"text": "A dormouse sleeps."}), ("ask_for_review", {"question": "is the note right?"})]


class Model(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        results = [message["content"] for message in asked["messages"] if message["role"] == "tool"]
        message = {"role": "assistant", "content": None}
        if len(results) < len(CALLS):
            name, arguments = CALLS[len(results)]
            function = {"name": name, "arguments": json.dumps(arguments)}
            message["tool_calls"] = [{"id": f"call_{len(results)}", "type": "function", "function": function}]
        else:
            message["content"] = f"the review says: {results[-1]}"
        body = json.dumps({"choices": [{"message": message}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = http.server.HTTPServer(("127.0.0.1", 0), Model)
port = pathlib.Path(sys.argv[1])
port.with_suffix(".new").write_text(str(server.server_port))
port.with_suffix(".new").rename(port)
server.serve_forever()
