#!/usr/bin/env python3
"""What deliveries by HTTP cost, and how soon a follower begins a turn (docs/PERFORMANCE.md).

    cargo build --release
    benches/outside.py [ROUNDS] [AGENTS]

Deliveries go through lighttpd (Debian's package of that name), beside a static file and a CGI script of two lines behind
the same server: in turn for the latency, and each for four seconds over 32 connections at once for the rate. A follower
(`tick --follow --all`) looks after AGENTS agents, of which one is spoken to ROUNDS times.

DORMOUSE names another program, DORMOUSE_BENCH_DIR another place to measure in.
"""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent.parent
CONNECTIONS, SECONDS = 32, 4
ENV = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "TZ": "UTC"}


def program():
    named = os.environ.get("DORMOUSE")
    found = [pathlib.Path(named)] if named else sorted(HERE.glob("target/*/release/dormouse"))
    if not found:
        sys.exit("outside.py: there is no release build: cargo build --release, or set DORMOUSE")
    return str(found[-1].resolve())


DORMOUSE = program()


def run(*args):
    return subprocess.run([DORMOUSE, *args], env=ENV, check=True, stdout=subprocess.PIPE, text=True).stdout


def percentile(times, part):
    return sorted(times)[min(len(times) - 1, len(times) * part // 100)] * 1000


class Deliveries:
    """lighttpd with a state directory, a file and a script."""

    def __init__(self):
        run("init", "-q")
        run("-q", "create", "ada", "--", "true")
        run("start", "ada")
        trigger = json.loads(run("--json", "trigger", "create", "-a", "ada"))
        with open(".dormouse/dormouse.toml", "a", encoding="utf-8") as settings:
            settings.write("\n[ingress]\nper_minute = 4000000000\n")
        here = os.getcwd()
        os.mkdir("www")
        answer = '{"status":"queued","duplicate":false}'
        pathlib.Path("www/file.json").write_text(answer + "\n", encoding="utf-8")
        scripts = {
            "shell": f"printf 'Content-Type: application/json\\r\\n\\r\\n{answer}\\n'",
            "hook": f"exec {DORMOUSE} -C {here} ingress",
        }
        for name, text in scripts.items():
            path = pathlib.Path(f"www/{name}.cgi")
            path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
            path.chmod(0o755)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        pathlib.Path("conf").write_text(
            f'server.document-root = "{here}/www"\nserver.bind = "127.0.0.1"\nserver.port = {self.port}\n'
            'server.modules = ("mod_cgi")\ncgi.assign = (".cgi" => "")\n',
            encoding="utf-8",
        )
        hook = f"/hook.cgi/agents/ada/triggers/{trigger['id']}"
        self.kinds = {
            "a static file": ("GET", "/file.json"),
            "a shell CGI": ("POST", "/shell.cgi"),
            "`ingress`, 404": ("POST", "/hook.cgi/nothing"),
            "a delivery": ("POST", hook),
            "a delivery with a key": ("POST", hook),
        }
        self.secret = trigger["trigger_secret"]
        self.keys = 0
        path = os.environ["PATH"] + ":/usr/sbin"
        self.server = subprocess.Popen(
            [shutil.which("lighttpd", path=path) or "lighttpd", "-D", "-f", "conf"],
            env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        time.sleep(0.5)

    def once(self, kind):
        """Returns how long one request took, and its status."""
        method, path = self.kinds[kind]
        self.keys += 1
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        if method == "POST":
            head += f"Authorization: Bearer {self.secret}\r\nContent-Type: application/json\r\nContent-Length: 15\r\n"
        if "key" in kind:
            head += f"Idempotency-Key: {self.keys}-{threading.get_ident()}\r\n"
        request = (head + "\r\n" + ('{"state":"red"}' if method == "POST" else "")).encode()
        begun = time.perf_counter()
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.sendall(request)
            answer = b""
            while more := connection.recv(65536):
                answer += more
        return time.perf_counter() - begun, int(answer[9:12])

    def measure(self, rounds):
        kinds = list(self.kinds)
        times = {kind: [] for kind in kinds}
        for number in range(rounds + 10):
            for at in range(len(kinds)):
                kind = kinds[(number + at) % len(kinds)]
                took, _ = self.once(kind)
                if number >= 10:
                    times[kind].append(took)
        print("| one after the other, ms | median | 99 % | minimum |\n|---|---|---|---|")
        for kind, of in times.items():
            print(f"| {kind} | {percentile(of, 50):.2f} | {percentile(of, 99):.2f} | {min(of) * 1000:.2f} |")
        print(f"\n| {CONNECTIONS} connections | a second | median ms | 99 % ms | answers |\n|---|---|---|---|---|")
        for kind in kinds:
            self.at_once(kind)
        self.server.terminate()

    def at_once(self, kind):
        times, answers = [], {}
        end = time.monotonic() + SECONDS

        def work():
            while time.monotonic() < end:
                took, status = self.once(kind)
                times.append(took)
                answers[status] = answers.get(status, 0) + 1

        begun = time.monotonic()
        threads = [threading.Thread(target=work) for _ in range(CONNECTIONS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        rate = len(times) / (time.monotonic() - begun)
        print(f"| {kind} | {rate:.0f} | {percentile(times, 50):.1f} | {percentile(times, 99):.1f} | {answers} |")


def follow(rounds, agents):
    """From the end of `enqueue` to the start of its turn, and what the follower does when nothing happens."""
    run("init", "-q", ".dormouse")
    mark = pathlib.Path("mark")
    run("-q", "create", "ada", "--shell", f": > '{mark.resolve()}'")
    run("start", "ada")
    for number in range(agents - 1):
        run("-q", "create", f"a{number}", "--", "true")
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind("manager")
    begun = time.monotonic()
    follower = subprocess.Popen(
        [DORMOUSE, "tick", "--all", "--follow"], stdout=subprocess.DEVNULL,
        env=ENV | {"NOTIFY_SOCKET": str(pathlib.Path("manager").resolve())},
    )
    manager.recv(100)
    ready = time.monotonic() - begun

    def status():
        lines = pathlib.Path(f"/proc/{follower.pid}/status").read_text(encoding="utf-8").splitlines()
        return dict(line.split(":\t", 1) for line in lines)

    def wakes():
        return int(status()["voluntary_ctxt_switches"])

    while (before := wakes()) is not None:
        time.sleep(5)
        if wakes() == before:
            break
    times = []
    for _ in range(rounds):
        mark.unlink(missing_ok=True)
        run("enqueue", "ada", "x")
        said = time.perf_counter()
        while not mark.exists():
            time.sleep(0.0002)
        times.append(time.perf_counter() - said)
        time.sleep(0.2)
    print(f"\n`tick --follow --all`, {agents} agents: ready after {ready:.2f} s, {status()['VmHWM'].strip()},")
    print("no wake-up in 5 s at rest. From the end of `enqueue` to the start of the turn:")
    print(f"median {percentile(times, 50):.1f} ms, 99 % {percentile(times, 99):.1f} ms, minimum {min(times) * 1000:.1f} ms.")
    follower.terminate()
    follower.wait()


def main():
    rounds, agents = [int(word) for word in (sys.argv[1:] + ["300", "1000"][len(sys.argv) - 1:])[:2]]
    parent = os.environ.get("DORMOUSE_BENCH_DIR")
    for measure in (lambda: Deliveries().measure(rounds), lambda: follow(rounds, agents)):
        with tempfile.TemporaryDirectory(dir=parent) as place:
            os.chdir(place)
            measure()
            os.chdir("/")


main()
