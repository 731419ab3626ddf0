#!/bin/sh
# Two machines share agents in PostgreSQL. A CI job without a checkout sends messages, and a table shows the agents.
#
#     sh examples/fleet/run.sh
#
# Builds the program first, unless DORMOUSE names one.
# Starts its own PostgreSQL server, so it needs the package postgresql, and as root also setpriv (util-linux).
set -eu

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
. "$here/../program.sh"
export DORMOUSE

work=$(mktemp -d "${TMPDIR:-/tmp}/dormouse-fleet.XXXXXX")
tickers=
end() {
    [ -z "$tickers" ] || kill $tickers 2>/dev/null || true
    wait
    [ ! -e "$work/db/postmaster.pid" ] || server pg_ctl stop -D "$work/db" -m fast -s
    rm -rf "$work"
}
trap end EXIT
trap 'exit 1' INT TERM
cd "$work"
# Use only the state directory of this script, even inside a turn.
unset DORMOUSE_DIR DORMOUSE_AGENT DORMOUSE_RUN DORMOUSE_NOW

say() { printf '\n%s\n' "$*"; }
# Each machine is simulated by its own directory for the files of a machine.
on() { XDG_STATE_HOME=$work/$1; export XDG_STATE_HOME; shift; "$DORMOUSE" "$@"; }
shown() { machine=$1; shift; printf '%s$ dormouse %s\n' "$machine" "$*"; on "$machine" "$@"; }

# The programs of the newest server. It refuses to run as root.
programs=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)
[ -n "$programs" ] || programs=$(dirname -- "$(command -v postgres)") || { echo "fleet: needs PostgreSQL" >&2; exit 1; }
server() {
    program=$programs/$1; shift
    if [ "$(id -u)" -eq 0 ]; then
        setpriv --reuid=nobody --regid="$(id -g nobody)" --clear-groups "$program" "$@"
    else
        "$program" "$@"
    fi
}

say "1. Start a database, and make the tables."
chmod 755 "$work"
mkdir db socket
[ "$(id -u)" -ne 0 ] || chown nobody db socket
server initdb -D "$work/db" -U agents -A trust -E UTF8 --no-sync >/dev/null
server pg_ctl start -D "$work/db" -w -s -l "$work/socket/log" -o "-k $work/socket -c listen_addresses="
server createdb -h "$work/socket" -U agents agents
# All commands use this store. `-C`, or `[store] url` in a dormouse.toml, can name it instead.
DORMOUSE_DIR="postgres://agents@/agents?host=$work/socket"
export DORMOUSE_DIR
shown one init

say "2. Two agents, and two machines that step them."
for agent in builder writer; do
    # Every turn prints the fencing token of its lease. A machine that takes over has a higher number.
    on one create "$agent" -q --shell 'echo "$DORMOUSE_AGENT $DORMOUSE_FENCE" >> "'"$work"'/turns"; echo "done under lease $DORMOUSE_FENCE"' >/dev/null
    on one start "$agent"
done
for machine in one two; do
    XDG_STATE_HOME=$work/$machine "$DORMOUSE" tick --all --follow --jobs 2 >"$machine.log" 2>&1 &
    tickers="$tickers $!"
done

say "3. A CI job sends a message and waits for the verdict. It needs only the URL."
shown ci enqueue builder "build of 4f5e6d7" --dedupe-key build:4f5e6d7 --await --timeout 2m
shown ci enqueue builder "build of 4f5e6d7" --dedupe-key build:4f5e6d7 -q

say "4. Six such jobs at once."
for number in 1 2 3 4 5 6; do
    on ci enqueue writer "page $number" --await --timeout 2m >/dev/null &
    jobs="${jobs-} $!"
done
# The exit status of each job is the verdict on its message.
for job in $jobs; do wait "$job"; done
printf '%s turns under %s leases\n' "$(wc -l <turns | tr -d ' ')" "$(sort -u turns | wc -l | tr -d ' ')"

say "5. One machine is shut down; the other continues."
kill "${tickers##* }"
wait "${tickers##* }"
tickers=${tickers% *}
shown ci enqueue builder "build of 0a1b2c3" --await --timeout 2m

say "6. The numbers for Prometheus, here as a table."
on ci metrics | sh "$here/dashboard.sh"
