#!/usr/bin/env python3
"""What one job of `true` costs with dormouse and with what else people use for it (README.md, docs/PERFORMANCE.md).

    cargo build --release
    benches/peers.py [ROUNDS]

Each way is called as a user calls it, one process after the other: `flock` as cron calls it, `pueue` with its daemon,
and the `sqlite3` command line with a table as queue. All ways in turn, so that a busy machine disturbs all alike. What is
not installed is left out. DORMOUSE names another program, DORMOUSE_BENCH_DIR another place to measure in.
"""

import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from built import program

CLAIM = "update q set taken=1 where id=(select min(id) from q where taken=0)"
SYNC = "pragma synchronous=full"


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


class Dormouse:
    name = "dormouse"

    def __init__(self):
        self.program = program()
        run(self.program, "init")
        run(self.program, "-q", "create", "ada", "--", "true")
        run(self.program, "start", "ada")

    def nothing(self):
        run(self.program, "tick", "ada")

    def give(self):
        run(self.program, "enqueue", "ada", "a job")

    def work(self):
        run(self.program, "tick", "ada")

    def end(self):
        return 0


class Flock:
    """It has no queue: what there is to do is the command itself."""

    name = "flock, as cron calls it"
    nothing = give = None

    def work(self):
        run("flock", "--nonblock", "lock", "true")

    def end(self):
        return 0


class Sqlite:
    name = "a queue in SQLite"

    def __init__(self):
        self.sql("pragma journal_mode=wal; create table q(id integer primary key, job text, taken int default 0)")

    def sql(self, statement):
        run("sqlite3", "q.db", f"{SYNC}; {statement}")

    def nothing(self):
        self.sql("select id from q where taken=0 limit 1")

    def give(self):
        self.sql("insert into q(job) values('a job')")

    def work(self):
        self.sql(CLAIM)
        run("true")
        self.sql("delete from q where taken=1")

    def end(self):
        return 0


class Pueue:
    """Its daemon does the work by itself; the job says when it runs."""

    name = "pueue"
    nothing = None

    def __init__(self):
        for name in ("config", "data", "run"):
            os.mkdir(name)
        os.environ.update(XDG_CONFIG_HOME=f"{os.getcwd()}/config", XDG_DATA_HOME=f"{os.getcwd()}/data",
                          XDG_RUNTIME_DIR=f"{os.getcwd()}/run")
        os.mkfifo("ran")
        self.ran = os.open("ran", os.O_RDWR)
        self.daemon = subprocess.Popen(["pueued"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while subprocess.run(["pueue", "status"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
            if time.monotonic() > deadline or self.daemon.poll() is not None:
                sys.exit("peers.py: pueued does not answer")
            time.sleep(0.05)

    def give(self):
        run("pueue", "add", "--", f"echo > {os.getcwd()}/ran")

    def work(self):
        os.read(self.ran, 1)

    def end(self):
        """The memory of its daemon, in MiB."""
        status = pathlib.Path(f"/proc/{self.daemon.pid}/status").read_text(encoding="ascii")
        size = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
        self.daemon.terminate()
        self.daemon.wait()
        return size / 1024


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    needs = {Dormouse: [], Flock: ["flock"], Sqlite: ["sqlite3"], Pueue: ["pueue", "pueued"]}
    with tempfile.TemporaryDirectory(dir=os.environ.get("DORMOUSE_BENCH_DIR")) as place:
        ways = []
        for kind, programs in needs.items():
            if all(map(shutil.which, programs)):
                home = pathlib.Path(place, kind.__name__)
                home.mkdir()
                os.chdir(home)
                ways.append((kind(), home, {"nothing": [], "give": [], "work": []}))
        for _ in range(rounds):
            for way, home, taken in ways:
                os.chdir(home)
                for act, times in taken.items():
                    if do := getattr(way, act):
                        begun = time.perf_counter()
                        do()
                        times.append((time.perf_counter() - begun) * 1000)
        print("medians (minima) in ms | nothing to do | a job given | a job done | MiB at rest")
        for way, _, taken in ways:
            cells = [f"{statistics.median(times):.2f} ({min(times):.2f})" if times else "-" for times in taken.values()]
            print(" | ".join([way.name, *cells, f"{way.end():.1f}"]))
        os.chdir("/")


main()
