#!/bin/sh
# The first process of the container: makes the state directory if there is none, and becomes the process that follows
# it. That one reaps what is orphaned, and lets running turns end at SIGTERM.
set -eu

: "${DORMOUSE:=dormouse}" "${DORMOUSE_DIR:=/agents/.dormouse}" "${JOBS:=4}"
export DORMOUSE_DIR
"$DORMOUSE" init --quiet "$DORMOUSE_DIR" >/dev/null
exec "$DORMOUSE" tick --all --follow --jobs "$JOBS"
