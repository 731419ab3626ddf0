#!/bin/sh
# Makes the pictures of README.md and docs/GUIDE.md: watch.svg and report.png, from what a few agents really do.
#
#     sh docs/images/make.sh
#
# Needs tmux, python3 and chromium. Builds the program first; set DORMOUSE to use one that is there already.
set -eu

here=$(cd "$(dirname -- "$0")" && pwd)
. "$here/../../examples/program.sh"

work=$(mktemp -d "${TMPDIR:-/tmp}/dormouse-images.XXXXXX")
socket=$work/tmux
trap 'tmux -S "$socket" kill-server 2>/dev/null || true; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
mkdir "$work/acme"
cd "$work/acme"
# Only what this script makes: no other state directory, no turn that we may be inside of.
unset DORMOUSE_DIR DORMOUSE_AGENT DORMOUSE_RUN DORMOUSE_NOW
now=$(date +%s)

# A command at a moment, in minutes before now. A step that fails is a part of the picture.
at() {
    moment=$((now - $1 * 60))
    shift
    DORMOUSE_NOW=$(date -u -d "@$moment" +%Y-%m-%dT%H:%M:%SZ) "$DORMOUSE" "$@" >/dev/null 2>&1 || true
}

# An agent, and what its turns do.
agent() {
    at 10200 create "$1" --shell "$2"
    at 10200 start "$1"
}

used='{"usage":{"model":"m","input_tokens":%s,"output_tokens":%s,"cost_usd":%s}}'
at 10200 init
agent reviewer "printf '$used' 18200 2100 0.09 >\"\$DORMOUSE_OUTCOME\"
case \$(cat) in *'#131'*) for file in parser lexer tokens ast lower; do echo \"reading src/\$file.rs\"; sleep 1; done; sleep 600 ;;
*) echo 'reviewed, two remarks' ;; esac"
agent nightly-backup "echo 'three volumes, 41 GB, verified'"
agent triage "printf '$used' 5200 900 0.03 >\"\$DORMOUSE_OUTCOME\"
case \$(cat) in *'#77'*) echo 'the tracker does not answer' >&2; exit 1 ;; *) echo 'labelled and assigned' ;; esac"
agent deploy "echo 'rolled out to 3 of 3 machines'"
agent docs "printf '$used' 9100 3300 0.06 >\"\$DORMOUSE_OUTCOME\"; echo 'two pages brought up to date'"
agent dependencies "echo 'nothing to raise'"
agent release-notes "echo 'a draft is in notes.md'"
printf '\n[recovery]\nbase = "20m"\nmax_attempts = 2\n' >>.dormouse/agents/triage/agent.toml

at 10000 timer add -a nightly-backup --every 24h 'back up the volumes'
at 10000 timer add -a dependencies --every 48h 'look for releases'
hour=166
while [ "$hour" -gt 3 ]; do
    case $((hour % 24)) in
    10 | 13) at $((hour * 60)) enqueue reviewer "please review #$((130 - hour / 10))" ;;
    16) at $((hour * 60)) enqueue triage "issue #$((97 - hour / 10))" ;;
    4) at $((hour * 60)) enqueue docs 'a change of the command line' ;;
    7) at $((hour * 60)) enqueue deploy 'to staging' ;;
    esac
    at $((hour * 60 - hour % 24)) tick --all --until-idle
    hour=$((hour - 3))
done
at 190 enqueue triage 'issue #77: crash at start'
at 185 tick triage
at 160 tick triage --until-idle
at 120 wait -a deploy --on operator --reason 'release 1.4 to production?' --expires 1d
at 60 work add release-notes 'notes for 1.4'
"$DORMOUSE" enqueue docs 'the flags of export' >/dev/null
"$DORMOUSE" enqueue reviewer 'please review #131' >/dev/null
"$DORMOUSE" enqueue reviewer 'please review #132' >/dev/null
"$DORMOUSE" tick reviewer >/dev/null 2>&1 &
tick=$!

"$DORMOUSE" report -o "$work/report.html" >/dev/null
chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --force-color-profile=srgb \
    --window-size=1100,1240 --screenshot="$here/report.png" "file://$work/report.html" 2>/dev/null

# The terminal's picture, once the age of the turn is 7 s.
tmux -S "$socket" -f /dev/null new-session -d -x 104 -y 16 "TERM=xterm-256color '$DORMOUSE' watch"
until tmux -S "$socket" capture-pane -p | grep -q ' [1-9][0-9]*s '; do sleep 0.2; done
sleep 1
tmux -S "$socket" capture-pane -p -e >"$work/screen"
kill "$tick" 2>/dev/null || true
python3 "$here/screen.py" 104 <"$work/screen" >"$here/watch.svg"
ls -l "$here/watch.svg" "$here/report.png"
