#!/bin/sh
# Says something to an agent, waits for its answer, and ends as the message did: for a job of any CI.
#
#   verdict.sh AGENT KEY TEXT
#
# It runs where the state directory is (DORMOUSE_DIR) and something ticks it: cron, or `dormouse tick --all --follow`.
# The brief of the turn goes to stdout. A job that runs again with the same key sends nothing twice: it waits for the
# same message, or has its answer at once. If that message has failed, it is tried again (--retry).
#
# Exit status: 0 completed, 7 failed for good (the end of the turn's output is on stderr), 8 no answer in time (the
# message stays queued).
set -eu

: "${DORMOUSE:=dormouse}" "${TIMEOUT:=10m}"
exec "$DORMOUSE" enqueue "$1" --origin channel:ci --dedupe-key "$2" --retry --await --timeout "$TIMEOUT" -- "$3"
