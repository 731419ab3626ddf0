#!/usr/bin/env bash
# How tests/data/format-1 was made, once. It is never made again: what was written then must load for ever.
# When the format gets a second version, this shows what to put into a directory of that one.
#
#   tests/data/make-format-1.sh PROGRAM DIRECTORY
#
# DIRECTORY must not exist. Needs jq.
set -euo pipefail
program=$(realpath "$1") target=$(realpath "$2")
[ ! -e "$target" ] || { echo "$target is there: it is never made again" >&2; exit 1; }

home=$(mktemp -d)
cd "$home"
seconds=1767225600 # 2026-01-01T00:00:00Z

# One command, a minute after the last one (at the same time as one that it takes the answer of).
dm() {
    seconds=$((seconds + 60))
    env -i PATH="$PATH" HOME="$home" TZ=UTC DORMOUSE_NOW="$(date -u -d "@$seconds" +%FT%TZ)" "$program" "$@"
}
# The same, and what it does with the status of a turn that failed.
failing() { dm "$@" && return 1 || [ $? -eq 7 ]; }
ends() { until [ -z "$(dm task list --agent "$1")" ]; do sleep 0.1; done; }

dm init >/dev/null

# ada: everything that can be open at once, and a little of everything that is over.
dm create ada --description "Reviews pull requests" --shell 'cp "$HOME/outcome" "$DORMOUSE_OUTCOME" 2>/dev/null; echo "looked at it"' >/dev/null
dm start ada >/dev/null
cat >outcome <<'JSON'
{"brief": "Reviewed #11", "usage": {"input_tokens": 1200, "output_tokens": 300, "cost_usd": 0.25, "model": "m"},
 "actions": [{"do": "work.add", "objective": "from an outcome", "todo": [{"text": "one", "done": true}, {"text": "two", "done": false}]}]}
JSON
dm enqueue ada "review #11" --dedupe-key pr-11 --correlation-id c-11 >/dev/null
dm tick ada >/dev/null
rm outcome
over=$(dm work add "already done" --agent ada --plan "# The plan it had" --pick)
dm wait --agent ada --on external --reason "the reviewer" --resource github:org/repo#11 --recheck 6h >/dev/null
dm work complete "$over" --result "approved" >/dev/null
dm timer add "fired once" --agent ada --in 1m >/dev/null
dm timer cancel "$(dm timer add "cancelled" --agent ada --in 1h)" >/dev/null
dm tick ada >/dev/null
dm wait cancel "$(dm wait --agent ada --on operator --whole-agent --reason "no longer asked")" >/dev/null
dm task start --agent ada --summary "the tests" -- sh -c 'echo one; echo two >&2; exit 3' >/dev/null
ends ada
dm tick ada --until-idle >/dev/null

focus=$(dm work add "waits for the operator" --agent ada --todo "ask" --todo "[x] look" --plan $'# Plan\n\nAsk first.\n' --pick)
dm wait --agent ada --work-item "$focus" --on operator --reason "which colour?" >/dev/null
dm work update "$focus" --todo "ask" --todo "[x] look" --todo "paint" >/dev/null
build=$(dm work add "waits for a task" --agent ada)
task=$(dm task start --agent ada --summary "the build" --work-item "$build" --timeout 1h -- sleep 600)
dm wait --agent ada --work-item "$build" --on task --resource "$task" --reason "the build" >/dev/null
for kind in "external --resource github:org/repo#12 --recheck 60d --expires 90d" "timer --in 60d" "system --recheck 60d"; do
    item=$(dm work add "waits: ${kind%% *}" --agent ada)
    # shellcheck disable=SC2086
    dm wait --agent ada --work-item "$item" --on $kind --reason "the ${kind%% *}" >/dev/null
done
dm wait --agent ada --whole-agent --on external --resource github:org/repo#13 --no-fallback "nobody can ask" --reason "the author" >/dev/null
blocked=$(dm work add "blocked" --agent ada --blocked-by "the release" --recheck 60d)
dm work update "$blocked" --plan-status draft >/dev/null
dm timer add "in ninety days" --agent ada --in 90d >/dev/null
dm timer add "every sixty days" --agent ada --every 60d --catch-up all >/dev/null
dm timer add "on the first of June" --agent ada --cron "0 9 1 6 *" --tz Europe/Berlin >/dev/null
dm enqueue ada "put off" --in 60d --dedupe-key later >/dev/null

# A queue with a segment, one message of each priority, and hints: one taken in, one not.
for text in one two; do dm enqueue ada "filed $text" >/dev/null; done
inbox=.dormouse/agents/ada/inbox
first=$(cd $inbox && ls 2-*.json | head -n 1)
mkdir "$inbox/${first%.json}"
mv $inbox/2-*.json "$inbox/${first%.json}/"
dm enqueue ada --origin webhook:github --body-json '{"action": "opened", "number": 14}' --resource github:org/repo#14 >/dev/null
dm wake ada --resource github:org/repo#13 "look again" >/dev/null
dm enqueue ada "stop the press" --priority interject >/dev/null
dm tick ada >/dev/null
dm wake ada "and here" >/dev/null
dm enqueue ada "in the background" --priority background --ttl 90d --dedupe-key slow >/dev/null
dm enqueue ada "next" --priority next >/dev/null
# Its supervisor goes the way of a machine that is somewhere else now.
kill -KILL "$(jq .supervisor_pid ".dormouse/agents/ada/tasks/$task.json")"

# bob: a dead letter, and a message that has failed once and is in backoff.
dm create bob --shell 'echo trouble >&2; exit 1' >/dev/null
printf '\n[recovery]\nstrategy = "fixed"\nbase = "60d"\nmax_delay = "60d"\nmax_attempts = 2\n' >>.dormouse/agents/bob/agent.toml
dm start bob >/dev/null
dm enqueue bob "never works" --dedupe-key dead >/dev/null
failing tick bob >/dev/null
dm recover bob >/dev/null
failing tick bob >/dev/null
dm recover bob >/dev/null
dm enqueue bob "fails once" >/dev/null
failing tick bob >/dev/null

# cyd: a child that was stopped. dora: never started. eve: holds a message until something is there.
dm create cyd --parent ada --shell true >/dev/null
dm start cyd >/dev/null
dm enqueue cyd "kept" >/dev/null
dm stop cyd >/dev/null
dm create dora --shell true >/dev/null
dm create eve --shell 'exit 75' >/dev/null
printf '\n[timeouts]\nresources = "never"\n\n[recovery]\nbase = "60d"\nmax_delay = "60d"\n' >>.dormouse/agents/eve/agent.toml
dm start eve >/dev/null
dm enqueue eve "not now" >/dev/null
dm tick eve >/dev/null
dm tick eve >/dev/null

# What belongs to the machine it was made on: left out where git would, but for the keys, and named anew.
cd .dormouse
rm -rf agents/*/lock agents/*/run.lock agents/*/tmp agents/*/tasks/*.lock agents/*/runs/*/leader agents/*/tasks/*/leader
find . -type f \( -name '*.json' -o -name '*.jsonl' \) -exec sed -i \
    -e "s|$home|/srv/project|g" \
    -e 's|"host": *"[^"]*"|"host": "first-host"|' \
    -e 's|"boot_id": *"[^"]*"|"boot_id": "00000000-0000-4000-8000-000000000000"|' \
    -e 's|"supervisor_pid": *[0-9]*|"supervisor_pid": 4711|' \
    -e 's|"owner": *"[^"]*"|"owner": "somebody"|' {} +
cd "$OLDPWD"
mv .dormouse "$target"
rm -rf "$home"
