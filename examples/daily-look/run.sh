#!/bin/sh
# A turn every morning at nine, by a calendar timer. No process runs in between.
#
#     examples/daily-look/run.sh
#
# DORMOUSE_NOW sets the time of one command, so a month passes in a second. It is for trials only.
# Needs jq.
set -eu

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
. "$(dirname -- "$0")/../program.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/daily-look.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
# Use only the state directory of this script, even inside a turn.
unset DORMOUSE_DIR DORMOUSE_AGENT DORMOUSE_RUN

dormouse() {
    echo "\$ dormouse $*"
    "$DORMOUSE" "$@"
}
say() { printf '\n%s\n' "$*"; }
# Sets the time of the following commands.
at() {
    export DORMOUSE_NOW="$1"
    say "-- $DORMOUSE_NOW: $2"
}

cp "$here/look.sh" "$work"
cd "$work"
printf 'water the plants\nanswer Ada\n' >list.txt

at 2026-03-02T08:00:00+01:00 "an agent, and a timer for nine o'clock in Berlin, in any time zone of this machine"
"$DORMOUSE" init >/dev/null
"$DORMOUSE" create looker --from "$here/agent.toml" >/dev/null
dormouse start looker
dormouse timer add -a looker --cron "0 9 * * *" --tz Europe/Berlin "have a look at the list"
dormouse tick looker

say "The next step is due at this time, also in the format of a systemd timer:"
dormouse next-wake looker
dormouse next-wake looker --format systemd

at 2026-03-02T08:30:00+01:00 "a step before that changes nothing, and with --exit-code it exits with 10"
before=$(cat .dormouse/agents/looker/state.json)
status=0
dormouse tick looker --exit-code || status=$?
[ "$status" -eq 10 ] || { echo "daily-look: exit status $status" >&2; exit 1; }
[ "$before" = "$(cat .dormouse/agents/looker/state.json)" ] || { echo "daily-look: it wrote" >&2; exit 1; }
echo "exit status $status, and not a byte written"

for day in 1 2; do
    at "$("$DORMOUSE" next-wake looker)" "morning $day: the timer is due, so a step sends its message and runs the turn"
    dormouse tick looker --until-idle
done
echo "fix the gate" >>list.txt

at 2026-03-10T14:30:00+01:00 "a week later: the machine was off for seven mornings"
say "One turn catches up on all of them; its message has the number of missed fires."
dormouse tick looker --until-idle
say "The next fire is at nine again:"
dormouse next-wake looker

say "-- the rest of March: a step each morning, when the timer is due"
mornings=0
while next=$("$DORMOUSE" next-wake looker) && [ "${next%%T*}" != 2026-03-30 ]; do
    export DORMOUSE_NOW="$next"
    "$DORMOUSE" tick looker --until-idle >/dev/null
    mornings=$((mornings + 1))
    echo "$next" >>mornings.txt
done
echo "$mornings mornings. On the 29th Berlin put its clocks forward, so nine o'clock there became 07:00 UTC:"
tail -n 3 mornings.txt

say "The last brief, and the brief after the missed week:"
"$DORMOUSE" briefs looker --limit 0 | sed -n '1p; /missed/p'

say "No process ran in between. On a real machine, cron or a systemd timer calls"
echo "\`dormouse tick --all --until-idle\` once a minute: examples/cron, examples/systemd."
