#!/usr/bin/env bash
# How tests/data/power-cut was made, once, like v1: a state directory whose machine lost its power. Its journal has four
# transactions, of which the files have two.
#
#   tests/data/make-power-cut.sh PROGRAM DIRECTORY
#
# DIRECTORY must not exist.
set -euo pipefail
program=$(realpath "$1") target=$(realpath "$2")
[ ! -e "$target" ] || { echo "$target is there: it is never made again" >&2; exit 1; }

home=$(mktemp -d)
cd "$home"
seconds=1767225600 # 2026-01-01T00:00:00Z
dm() {
    seconds=$((seconds + 60))
    env -i PATH="$PATH" HOME="$home" TZ=UTC DORMOUSE_NOW="$(date -u -d "@$seconds" +%FT%TZ)" "$program" "$@"
}

dm init >/dev/null
dm create ada --shell true >/dev/null
dm start ada >/dev/null
dm enqueue ada "hello" >/dev/null
dm tick ada --until-idle >/dev/null
one=$(dm work add "one" --agent ada --plan "# How")
dm work add "two" --agent ada >/dev/null
cp -a .dormouse then
dm work complete "$one" --result "done" >/dev/null
dm timer add "in ninety days" --agent ada --in 90d >/dev/null

# The journal names no machine and another boot, and its sums are those of what is left.
head=42 tail=89
while IFS= read -r line; do
    body=$(printf %s "${line:head:${#line}-head-tail+1}" | sed -e 's|"machine":"[^"]*",||' -e "s|$home|/srv/project|g")
    none=--------------------------------
    sum=$(printf %s "$body" | sha256sum | cut -c 1-32)
    printf '{"sum":"%s",%s,"boot":"%s","applied":"%s"}\n' "$sum" "$body" 00000000000000000000000000000000 $none
done <.dormouse/agents/ada/journal.jsonl >then/agents/ada/journal.jsonl
cd then
rm -rf .gitignore .gitattributes agents/*/lock agents/*/run.lock agents/*/tmp agents/*/cache agents/*/runs/*/leader agents/*/runs/*/end.json
find . -type f \( -name '*.json' -o -name '*.jsonl' \) ! -name journal.jsonl -exec sed -i \
    -e "s|$home|/srv/project|g" \
    -e 's|"host": *"[^"]*"|"host": "first-host"|' \
    -e 's|"boot_id": *"[^"]*"|"boot_id": "00000000-0000-4000-8000-000000000000"|' \
    -e 's|"owner": *"[^"]*"|"owner": "somebody"|' {} +
cd "$OLDPWD"
mv then "$target"
rm -rf "$home"
