#!/bin/sh
# A service fails several times and then works. The session shows attempts, the pauses between them,
# a dead letter, and its requeue.
#
#     examples/flaky-service/run.sh
#
# DORMOUSE_NOW sets the time of one command, so the session takes seconds instead of minutes.
set -eu

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
. "$(dirname -- "$0")/../program.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/flaky-service.XXXXXX")
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
wrong() {
    echo "flaky-service: $*" >&2
    exit 1
}
# Fails unless two words are the same.
same() { [ "$1" = "$2" ] || wrong "$3: \`$1\`, not \`$2\`"; }
get() { "$DORMOUSE" get courier "$1"; }
seconds() { echo "$1" | awk -F '[T:Z]' '{ printf "%.3f", $2 * 3600 + $3 * 60 + $4 }'; }

# Makes a step whose turn must fail: `tick` exits with 7.
fails() {
    status=0
    dormouse tick courier || status=$?
    same "$status" 7 "exit status of a turn that failed"
}
# Checks the pause after an attempt: this many seconds, and at most a tenth more.
pause() {
    not_before=$(get retry.not_before)
    same "$("$DORMOUSE" next-wake courier)" "$not_before" "the next step is due"
    awk -v from="$(seconds "$DORMOUSE_NOW")" -v to="$(seconds "$not_before")" -v least="$1" 'BEGIN {
        pause = to - from
        printf "a pause of %.3f s: %d s, and a part of a tenth of it\n", pause, least
        exit !(pause > least - 0.0005 && pause < least * 1.1 + 0.0005)
    }' || wrong "the pause is not $1 s and up to a tenth more"
}

cp "$here/turn.sh" "$here/service.sh" "$work"
cd "$work"

at 2026-03-02T12:00:00.000Z "the service is down for three calls"
echo 3 >outage
"$DORMOUSE" init >/dev/null
"$DORMOUSE" create courier --from "$here/agent.toml" >/dev/null
dormouse start courier
dormouse enqueue courier "an order"
fails
same "$(get execution.state)" failed "the agent"

say "The message is kept for the second attempt, which is due at:"
dormouse get courier retry.not_before
dormouse next-wake courier
pause 10

say "A step before that time does not call the service:"
dormouse tick courier
same "$(wc -l <calls | tr -d ' ')" 1 "calls"

for attempt in 2 3; do
    at "$("$DORMOUSE" next-wake courier)" "attempt $attempt: the agent recovers, and its next step tries again"
    dormouse tick courier
    fails
    pause $((5 * (1 << attempt)))
done

at "$("$DORMOUSE" next-wake courier)" "attempt 4: the service is back"
dormouse tick courier --until-idle
same "$(get last_turn.brief)" "200 OK, on attempt 4" "the last word"
same "$("$DORMOUSE" next-wake courier)" "" "nothing is due"

at 2026-03-02T13:00:00.000Z "a longer outage, and two more orders"
echo 4 >outage
order=$("$DORMOUSE" enqueue courier "the order that has bad luck")
fails
at 2026-03-02T13:00:01.000Z "the second of them"
dormouse enqueue courier "the order after it"
while [ "$(cat outage)" -gt 0 ]; do
    at "$("$DORMOUSE" next-wake courier)" "the pause is over"
    status=0
    # Each attention is a line on stderr, which cron would mail.
    dormouse tick courier --until-idle 2>&1 || status=$?
    same "$status" 7 "exit status of a turn that failed"
done

say "After four attempts the message is a dead letter. It does not block the next order:"
dormouse list
same "$(get attention.count)" 1 "what needs attention"
same "$(get last_turn.brief)" "200 OK, on attempt 1" "the last word"
dormouse queue dead -a courier
dormouse queue show "$order"
same "$(get queue.dead)" 1 "dead letters"

say "The service works again, so the operator requeues the dead letter. It begins with its first attempt:"
dormouse queue requeue "$order"
same "$(get attention.count)" "" "what needs attention"
dormouse tick courier --until-idle
same "$(get last_turn.brief)" "200 OK, on attempt 1" "the last word"
same "$(get queue.dead)" 0 "dead letters"
same "$("$DORMOUSE" queue show "$order" --json | grep -c '"status":"processed"')" 1 "a processed order"
same "$(wc -l <calls | tr -d ' ')" 10 "calls"
dormouse doctor
