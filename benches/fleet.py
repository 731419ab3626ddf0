#!/usr/bin/env python3
"""What a step costs where the records are in PostgreSQL, beside a job of two queues of PostgreSQL that are well known
(docs/PERFORMANCE.md): graphile-worker and pg-boss.

    cargo build --release
    benches/fleet.py [ROUNDS] [STEPS] [AGENTS] [WORD...]

Starts a durable server of its own, and has npm bring the queues into a directory that goes again; so it needs PostgreSQL's
programs, node and npm. All ways take their turn in each round. A way is measured from the first tenth of its jobs to the last tenth, when
whoever works is up and all have work. WORDs choose the ways whose names have one of them.

A job is a child process `true`, as a turn is; `nothing` is a job that does nothing inside of the queue's own process.

- `dormouse, 8 tickers`: so many times `tick --all --follow`, each as on a machine of its own, that is with an anchor of its own.
- `dormouse, 1 ticker of 8`: one with `--jobs 8`.
- `graphile-worker, 8 in one`: one process with a concurrency of 8; `8 processes`: so many with one job at a time.
- `pg-boss`: each takes one job, does it, and completes it, by its own `fetch` and `complete`. Its `work` would wait for half a second
  in between.

DORMOUSE names another program, DORMOUSE_BENCH_DIR another place to measure in.
"""

import os
import pathlib
import pwd
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from built import program

QUEUES = {"graphile-worker": "graphile-worker@0.17", "pg-boss": "pg-boss@10"}
# A checkpoint in the middle would count for whoever is measured then.
SETTINGS = """
listen_addresses = ''
max_connections = 200
checkpoint_timeout = 1h
max_wal_size = 8GB
"""
GRAPHILE = """
const { run } = require("graphile-worker"), { Pool } = require("pg");
const many = Number(process.argv[2]), quiet = new (require("graphile-worker").Logger)(() => () => {});
const pgPool = new Pool({ max: many + 2 }).on("error", () => {}).on("connect", (one) => one.on("error", () => {}));
const child = () => new Promise((done) => require("child_process").spawn("true", { stdio: "ignore" }).on("exit", done));
run({ pgPool, concurrency: many, maxPoolSize: many + 2, logger: quiet, crontab: "",
      taskList: { child, nothing: async () => {} } });
"""
BOSS = """
const Boss = require("pg-boss"), [many, queue] = [Number(process.argv[2]), process.argv[3]];
const child = () => new Promise((done) => require("child_process").spawn("true", { stdio: "ignore" }).on("exit", done));
(async () => {
  const boss = new Boss({ max: many + 2, supervise: false, schedule: false });
  await boss.start();
  if (queue === "make") { await boss.createQueue("child"); await boss.createQueue("nothing"); await boss.stop(); return; }
  const work = async () => {
    for (;;) {
      const [job] = await boss.fetch(queue);
      if (!job) { await new Promise((later) => setTimeout(later, 50)); continue; }
      if (queue === "child") await child();
      await boss.complete(queue, job.id);
    }
  };
  for (let worker = 0; worker < many; worker++) work();
})();
"""


def as_user(*command):
    """A command of the server's, which refuses to run as root."""
    if os.geteuid():
        return list(command)
    return ["setpriv", f"--reuid={USER.pw_uid}", f"--regid={USER.pw_gid}", "--clear-groups", *command]


USER = next(filter(None, (next((one for one in pwd.getpwall() if one.pw_name == name), None) for name in ("postgres", "nobody"))))


class Server:
    """A PostgreSQL that forgets nothing in a power cut, and a session to look into it."""

    def __init__(self, place):
        found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
        programs = found[-1] if found else sys.exit("fleet.py: there is no PostgreSQL: apt-get install postgresql")
        self.place, data = place, place / "data"
        place.mkdir()
        if not os.geteuid():
            os.chown(place, USER.pw_uid, USER.pw_gid)
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": "/"}
        subprocess.run(as_user(programs / "initdb", "-E", "UTF8", "--locale=C.UTF-8", "-U", "postgres", "-A", "trust", "-D", data),
                       check=True, **quiet)
        with open(data / "postgresql.conf", "a", encoding="utf-8") as settings:
            settings.write(SETTINGS + f"unix_socket_directories = '{place}'\n")
        self.process = subprocess.Popen(as_user(programs / "postgres", "-D", data), **quiet)
        self.env = {"PGHOST": str(place), "PGUSER": "postgres", "PGDATABASE": "postgres"}
        while subprocess.run([programs / "pg_isready", "-q"], env=self.env, check=False).returncode:
            time.sleep(0.05)
        self.psql = subprocess.Popen(["psql", "-XAtq"], env=ENV | self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.asked = 0

    def ask(self, statement):
        """The first row of an answer."""
        self.asked += 1
        self.psql.stdin.write(f"{statement};\n\\echo --\n")
        self.psql.stdin.flush()
        rows = list(iter(lambda: self.psql.stdout.readline().strip(), "--"))
        return rows[0] if rows else None

    def url(self):
        return f"postgres://postgres@/postgres?host={self.place}"

    def written(self):
        """Transactions, bytes of the log, and how often it was synced, so far."""
        # Sessions tell of their transactions when they end, or after a second.
        time.sleep(1.5)
        self.ask("SELECT pg_stat_force_next_flush()")
        row = self.ask("SELECT xact_commit, wal_bytes, wal_sync FROM pg_stat_database, pg_stat_wal WHERE datname = current_database()")
        commits, *others = map(int, row.split("|"))
        return [commits - self.asked, *others]

    def end(self):
        self.psql.stdin.close()
        self.psql.wait()
        self.process.send_signal(signal.SIGINT)
        self.process.wait()


def used(roots):
    """Seconds of processor time of processes and of all that they have started, so far."""
    parents, times = {}, {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="utf-8", errors="replace").rsplit(") ", 1)[1].split()
        except OSError:
            continue
        parents[int(stat.parent.name)] = int(fields[1])
        times[int(stat.parent.name)] = sum(map(int, fields[11:15]))

    def is_below(pid):
        while pid and pid not in roots:
            pid = parents.get(pid)
        return bool(pid)

    return sum(took for pid, took in times.items() if is_below(pid)) / os.sysconf("SC_CLK_TCK")


class Dormouse:
    """Agents whose turns are `true`."""

    def __init__(self, server, agents):
        self.server, self.program, self.agents = server, program(), agents
        self.run("init", "-q")
        for number in range(agents):
            self.run("-q", "create", f"a{number}", "--", "true")
        self.run("-q", "start", "--all")

    def run(self, *args, text=None, anchor="anchor"):
        subprocess.run([self.program, "-C", self.server.url(), *args], env=self.env(anchor), check=True, input=text, text=True,
                       stdout=subprocess.DEVNULL)

    def env(self, anchor):
        return ENV | {"XDG_STATE_HOME": f"{os.getcwd()}/{anchor}"}

    def fill(self, steps, _):
        for number in range(self.agents):
            many = steps // self.agents + (number < steps % self.agents)
            self.run("-q", "enqueue", f"a{number}", "--batch", text='{"text":"a job"}\n' * many)

    left = "SELECT count(*) FROM dormouse.inbox"
    done = "SELECT count(*) FROM dormouse.archive WHERE kind = 'run'"

    def start(self, processes, many, _):
        tick = [self.program, "-C", self.server.url(), "tick", "--all", "--follow", "-q", "--jobs", str(many)]
        return [subprocess.Popen(tick, env=self.env(f"anchor{number}"), stdout=subprocess.DEVNULL) for number in range(processes)]


class Queue:
    """One of the queues of npm."""

    def __init__(self, server, name, script):
        self.server, self.name = server, name
        pathlib.Path(f"{name}.js").write_text(script, encoding="utf-8")

    def node(self, *args):
        return subprocess.Popen(["node", f"{self.name}.js", *args], env=ENV | self.server.env, stdout=subprocess.DEVNULL)

    def start(self, processes, many, job):
        return [self.node(str(many), job) for _ in range(processes)]


class Graphile(Queue):
    def __init__(self, server):
        super().__init__(server, "graphile-worker", GRAPHILE)
        subprocess.run(["npx", "graphile-worker", "--schema-only"], env=ENV | server.env | {"DATABASE_URL": server.url()}, check=True,
                       stdout=subprocess.DEVNULL)

    def fill(self, steps, job):
        self.server.ask(f"SELECT count(graphile_worker.add_job('{job}')) FROM generate_series(1, {steps})")

    left = "SELECT count(*) FROM graphile_worker._private_jobs"
    # What is done is not there any more.
    done = None


class PgBoss(Queue):
    def __init__(self, server):
        super().__init__(server, "pg-boss", BOSS)
        assert self.node("1", "make").wait() == 0

    def fill(self, steps, job):
        self.server.ask(f"INSERT INTO pgboss.job (name) SELECT '{job}' FROM generate_series(1, {steps})")

    left = "SELECT count(*) FROM pgboss.job WHERE state < 'active'"
    done = "SELECT count(*) FROM pgboss.job WHERE state = 'completed'"


def measure(server, way, steps, processes, many, job):
    """One round of a way. Returns, for each step: milliseconds, those of processor time of the clients and of the server, transactions,
    bytes of the log and its syncs."""
    way.fill(steps, job)
    before, done = server.written(), way.done and int(server.ask(way.done))
    started = way.start(processes, many, job)
    roots = {child.pid for child in started}
    marks = []
    for least in (steps * 9 // 10, steps // 10, 0):
        while (left := int(server.ask(way.left))) > least:
            time.sleep(0.02)
        marks.append((time.perf_counter(), used(roots), used({server.process.pid}), left))
    while way.done and int(server.ask(way.done)) < done + steps:
        time.sleep(0.05)
    for child in started:
        child.terminate()
    for child in started:
        child.wait()
    assert not way.done or int(server.ask(way.done)) == done + steps, "some job ran twice"
    (*begun, most), (*ended, least), _ = marks
    times = [(later - earlier) * 1000 / (most - least) for later, earlier in zip(ended, begun)]
    return times + [(later - earlier) / steps for later, earlier in zip(server.written(), before)]


def main():
    words = [word for word in sys.argv[1:] if not word.isdigit()]
    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
    rounds, steps, agents = (numbers + [5, 640, 64][len(numbers):])[:3]
    kinds = {
        "dormouse": (lambda server: Dormouse(server, agents), steps, "tickers", "1 ticker of {}", ["child"]),
        "graphile-worker": (Graphile, steps * 3, "processes", "{} in one", ["child", "nothing"]),
        "pg-boss": (PgBoss, steps * 3, "processes", "{} in one", ["child", "nothing"]),
    }
    ways = []
    for kind, (make, number, each, together, jobs) in kinds.items():
        for job in jobs:
            shown = kind + ("" if job == "child" else ", nothing")
            ways.append((f"{shown}, 1", kind, number, 1, 1, job))
            for many in (8, 32):
                ways.append((f"{shown}, {many} {each}", kind, number, many, 1, job))
                ways.append((f"{shown}, {together.format(many)}", kind, number, 1, many, job))
    ways = [way for way in ways if not words or any(word in way[0] for word in words)]
    with tempfile.TemporaryDirectory(dir=os.environ.get("DORMOUSE_BENCH_DIR"), prefix="dormouse-fleet") as place:
        os.chmod(place, 0o755)
        os.chdir(place)
        needed = [name for kind, name in QUEUES.items() if any(way[1] == kind for way in ways)]
        if needed:
            pathlib.Path("package.json").write_text("{}", encoding="utf-8")
            subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", *needed], check=True, stdout=subprocess.DEVNULL)
        server = Server(pathlib.Path(place, "server"))
        try:
            made = {kind: kinds[kind][0](server) for kind in dict.fromkeys(way[1] for way in ways)}
            server.ask("CHECKPOINT")
            taken = {way[0]: [] for way in ways}
            for _ in range(rounds):
                for name, kind, *numbers, job in ways:
                    taken[name].append(measure(server, made[kind], *numbers, job))
        finally:
            server.end()
            os.chdir("/")
    print("| | a second | ms, median (minimum) | processor time: clients | server | transactions | KB of log | syncs |")
    print("|---|---|---|---|---|---|---|---|")
    for name, of in taken.items():
        wall, clients, of_server, commits, log, syncs = zip(*of)
        median = statistics.median
        print(f"| {name} | {1000 / median(wall):.0f} | {median(wall):.2f} ({min(wall):.2f}) | {median(clients):.2f} ({min(clients):.2f}) "
              f"| {median(of_server):.2f} ({min(of_server):.2f}) | {median(commits):.1f} | {median(log) / 1000:.1f} | {median(syncs):.2f} |")


ENV = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/nonexistent"), "TZ": "UTC"}
main()
