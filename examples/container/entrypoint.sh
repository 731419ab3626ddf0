#!/bin/sh
# The first process of the container: makes the state directory if there is none, and then runs `tick --follow` in the
# same process. That process reaps orphans, and at SIGTERM it lets running turns end.
set -eu

: "${DORMOUSE:=dormouse}" "${DORMOUSE_DIR:=/agents/.dormouse}" "${JOBS:=4}"
export DORMOUSE_DIR
"$DORMOUSE" init --quiet "$DORMOUSE_DIR" >/dev/null
exec "$DORMOUSE" tick --all --follow --jobs "$JOBS"
