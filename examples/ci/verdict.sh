#!/bin/sh
# Sends a message to an agent and waits for the answer. The exit status is the verdict on the message, for a job of any CI.
#
#   verdict.sh AGENT KEY TEXT
#
# The script runs on the machine of the state directory (DORMOUSE_DIR), where cron or `dormouse tick --all --follow` ticks.
# The brief of the turn goes to stdout. A job that runs again with the same key sends no second message. It waits for the
# first one, or prints its answer at once. If the first message has failed, it is tried again (--retry).
#
# Exit status: 0 completed, 7 failed for good (the end of the turn's output is on stderr), 8 timed out (the message stays
# queued).
set -eu

: "${DORMOUSE:=dormouse}" "${TIMEOUT:=10m}"
exec "$DORMOUSE" enqueue "$1" --origin channel:ci --dedupe-key "$2" --retry --await --timeout "$TIMEOUT" -- "$3"
