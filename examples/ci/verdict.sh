#!/bin/sh
# Says something to an agent, waits for its answer, and ends as the message did: for a job of any CI.
#
#   verdict.sh AGENT KEY TEXT
#
# It runs where the state directory is (DORMOUSE_DIR) and something ticks it: cron, or `dormouse tick --all --follow`.
# The brief of the turn goes to stdout. A job that is run again with the same key asks nothing twice: it waits for
# the same message, or has the answer at once.
#
# Exit status: 0 completed, 7 failed for good, 8 no answer in time (the message stays queued).
set -eu

: "${DORMOUSE:=dormouse}" "${TIMEOUT:=10m}"
exec "$DORMOUSE" enqueue "$1" --origin channel:ci --dedupe-key "$2" --await --timeout "$TIMEOUT" -- "$3"
