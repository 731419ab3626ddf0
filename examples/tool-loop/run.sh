#!/bin/sh
# A model calls tools, asks for a review, and continues when a person has answered.
#
#     examples/tool-loop/run.sh
#
# The model is simulated by a small server (model.py). Needs jq, curl and python3.
set -eu

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
. "$(dirname -- "$0")/../program.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/tool-loop.XXXXXX")
model=
trap '[ -z "$model" ] || kill "$model"; wait; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
unset DORMOUSE_DIR DORMOUSE_AGENT DORMOUSE_RUN DORMOUSE_NOW MODEL_HEADERS
export no_proxy=127.0.0.1

dormouse() {
    echo "\$ dormouse $*"
    "$DORMOUSE" "$@" 2>&1
}

cp "$here/turn.sh" "$work"
cd "$work"
mkdir desk
python3 "$here/model.py" port &
model=$!
until [ -e port ]; do
    kill -0 "$model" 2>/dev/null || { echo "tool-loop: the model has not started" >&2; exit 1; }
    sleep 0.05
done
MODEL_URL=http://127.0.0.1:$(cat port)/v1
export MODEL_URL
"$DORMOUSE" init >/dev/null
"$DORMOUSE" create writer --from "$here/agent.toml" >/dev/null
"$DORMOUSE" start writer >/dev/null

dormouse enqueue writer "a note on dormice, please"
dormouse tick writer --until-idle
cat desk/note
dormouse enqueue writer "yes, publish it"
dormouse tick writer --until-idle
dormouse doctor
