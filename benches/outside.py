#!/usr/bin/env python3
"""What the ways in and out of a state directory cost (docs/PERFORMANCE.md): deliveries by HTTP, the start of a turn by a
follower, steps of several clones, and agents that travel.

    cargo build --release
    benches/outside.py [ROUNDS] [AGENTS] [PART...]

The parts are `deliveries`, `follow`, `push` and `travel`; without one all of them.

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

from built import program

CONNECTIONS, SECONDS = 32, 4
ENV = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "TZ": "UTC"}
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


def git(*args):
    subprocess.run(["git", *args], env=ENV, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def push(rounds):
    """A step with `--push` beside git's own commit and push of one changed file, in turn in one repository."""
    pathlib.Path("home").mkdir()
    ENV["HOME"] = str(pathlib.Path("home").resolve())
    pathlib.Path("home/.gitconfig").write_text("[user]\nname = a\nemail = a@b\n", encoding="utf-8")
    git("init", "-q", "--bare", "remote")
    git("clone", "-q", "remote", "clone")
    os.chdir("clone")
    run("init", "-q")
    run("-q", "create", "ada", "--", "true")
    run("start", "ada")
    git("add", ".")
    git("commit", "-qm", "begin")
    git("push", "-q", "-u", "origin", "HEAD")
    of_git, of_steps = [], []
    for number in range(rounds + 2):
        pathlib.Path("file").write_text(f"{number}\n" * 100, encoding="utf-8")
        begun = time.perf_counter()
        git("add", "file")
        git("commit", "-qm", "x")
        git("push", "-q", "origin", "HEAD")
        between = time.perf_counter()
        run("enqueue", "ada", "x")
        git("add", ".")
        step = time.perf_counter()
        run("tick", "ada", "--push", "-q")
        of_steps.append(time.perf_counter() - step)
        of_git.append(between - begun)
    of_git, of_steps = of_git[2:], of_steps[2:]
    shown = [f"{percentile(of, 50):.0f} ms (minimum {min(of) * 1000:.0f})" for of in (of_steps, of_git)]
    print(f"\n`tick --push` with a turn of `true`: {shown[0]}; git's add, commit and push: {shown[1]};")
    print(f"as many times that: {percentile(of_steps, 50) / percentile(of_git, 50):.1f}")


def watched(command):
    """Runs a command; returns its seconds, and the most memory that it had, in MiB, as looks every 2 ms see it."""
    begun, most = time.perf_counter(), 0
    child = subprocess.Popen(command, env=ENV, stdout=subprocess.DEVNULL)
    while child.poll() is None:
        try:
            status = pathlib.Path(f"/proc/{child.pid}/status").read_text(encoding="utf-8")
            words = [line.split() for line in status.splitlines()]
            most = max([most] + [int(line[1]) for line in words if line[:1] == ["VmHWM:"] and "python" not in status])
        except (OSError, ValueError):
            pass
        time.sleep(0.002)
    assert child.returncode == 0, command
    return time.perf_counter() - begun, most / 1024


def travel():
    """Agents with much to carry: `export` and `import` beside tar."""
    print("\n| what travels | `export` | tar, sync | `import` | tar, sync | memory, MiB |\n|---|---|---|---|---|---|")
    mib = 1 << 20
    for what in ("100,000 messages", "1 GiB of output"):
        os.mkdir(what)
        os.chdir(what)
        run("init", "-q")
        output = 'head -c 1073741824 /dev/urandom >"${DORMOUSE_OUTCOME%/*}/output"' if "GiB" in what else "true"
        run("-q", "create", "ada", "--shell", output)
        if "GiB" in what:
            run("start", "ada")
            run("enqueue", "ada", "x")
            run("tick", "ada", "-q")
        else:
            lines = "".join(json.dumps({"text": f"message {number}"}) + "\n" for number in range(100_000))
            subprocess.run([DORMOUSE, "enqueue", "ada", "--batch", "-q"], env=ENV, check=True, input=lines, text=True,
                           stdout=subprocess.DEVNULL)
        run("init", "-q", "there")
        os.mkdir("beside")
        os.sync()
        taken, most_out = watched([DORMOUSE, "export", "ada", "-o", "ada.tar", "-q"])
        tarred, _ = watched(["sh", "-c", "tar -C .dormouse -cf other.tar agents/ada && sync -f other.tar"])
        os.sync()
        brought, most_in = watched([DORMOUSE, "-C", "there", "import", "ada.tar", "-q"])
        unpacked, _ = watched(["sh", "-c", "tar -C beside -xf other.tar && sync -f beside"])
        size = pathlib.Path("ada.tar").stat().st_size / mib
        print(f"| {what} ({size:.0f} MiB) | {taken:.1f} s | {tarred:.1f} s | {brought:.1f} s | {unpacked:.1f} s "
              f"| {most_out:.0f}, {most_in:.0f} |")
        os.chdir("..")


def main():
    words = [word for word in sys.argv[1:] if not word.isdigit()]
    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
    rounds, agents = (numbers + [300, 1000][len(numbers):])[:2]
    parts = {
        "deliveries": lambda: Deliveries().measure(rounds),
        "follow": lambda: follow(rounds, agents),
        "push": lambda: push(min(rounds, 30)),
        "travel": travel,
    }
    parent = os.environ.get("DORMOUSE_BENCH_DIR")
    for name, measure in parts.items():
        if words and name not in words:
            continue
        with tempfile.TemporaryDirectory(dir=parent) as place:
            os.chdir(place)
            measure()
            os.chdir("/")


main()
