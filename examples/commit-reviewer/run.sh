#!/bin/sh
# An agent reviews the last commits of a git repository and writes a note about each.
#
#     examples/commit-reviewer/run.sh [-n COUNT] [-k] [REPOSITORY]
#
# By default REPOSITORY is that of this project. If that has no history (an unpacked archive, a
# shallow clone), the script makes a small one. -k keeps the directory with the notes. Needs git and jq.
#
# The script shows:
# - a batch of CI payloads, each admitted once although it is delivered twice
# - a turn that fails and is tried again after a pause
# - exactly one note for each commit
set -eu

count=8
keep=
while getopts n:k option; do
    case $option in
        n) count=$OPTARG ;;
        k) keep=1 ;;
        *) echo "usage: $0 [-n COUNT] [-k] [REPOSITORY]" >&2; exit 2 ;;
    esac
done
shift $((OPTIND - 1))
for tool in git jq; do
    command -v "$tool" >/dev/null || { echo "commit-reviewer: needs $tool" >&2; exit 1; }
done
# In a git hook or a turn these variables would name another repository or state directory.
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE DORMOUSE_DIR DORMOUSE_AGENT DORMOUSE_RUN DORMOUSE_NOW

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
project=$(CDPATH= cd -- "$here/../.." && pwd)
. "$(dirname -- "$0")/../program.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/commit-reviewer.XXXXXX")
trap '[ -n "$keep" ] || rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
fail() { echo "commit-reviewer: $*" >&2; exit 1; }

# Makes a history of three commits that have faults.
make_repository() {
    git init --quiet "$1"
    cd "$1"
    commit() {
        git add --all
        git -c user.name=Example -c user.email=example@example.org -c commit.gpgsign=false \
            commit --quiet --message "$1"
    }
    printf 'A little project.\n' >README
    commit "Say what this is"
    mkdir src
    printf 'fn main() {}   \n// TODO: everything\n' >src/main.rs
    commit "Begin."
    printf 'fn main() {\n    println!("hello");\n}\n' >src/main.rs
    commit "WIP greet whoever calls"
    cd "$work"
}

repository=${1:-$project}
has_history() { [ "$(git -C "$1" rev-list --count --max-count=2 HEAD 2>/dev/null || echo 0)" -ge 2 ]; }
is_shallow() { [ "$(git -C "$1" rev-parse --is-shallow-repository 2>/dev/null)" != false ]; }
if [ $# -gt 0 ]; then
    repository=$(git -C "$1" rev-parse --absolute-git-dir) || exit 1
elif ! has_history "$project" || is_shallow "$project"; then
    repository=$work/little
    (make_repository "$repository")
fi

cd "$work"
git -C "$repository" rev-list --max-count="$count" --reverse HEAD >commits
total=$(wc -l <commits | tr -d ' ')
newest=$(tail -n 1 commits)
echo "reviewing $total commits of $repository"

# The agent: its turn, its repository, the directory of its notes, and short pauses between attempts.
text() { jq -n --arg text "$1" '$text'; }
cat >reviewer.toml <<POLICY
description = "Reviews commits"

[turn]
command = [$(text "$here/turn.sh")]
timeout = "2m"

[turn.env]
REVIEW_REPOSITORY = $(text "$repository")
REVIEW_NOTES = $(text "$work/notes")
REVIEW_UNREACHABLE_FOR = "$newest"

[recovery]
base = "100ms"
POLICY
"$DORMOUSE" init >/dev/null
"$DORMOUSE" create reviewer --from reviewer.toml >/dev/null
"$DORMOUSE" start reviewer

# CI delivers every commit twice, as webhooks may. The dedupe key admits each commit once.
deliver() {
    while read -r commit; do
        git -C "$repository" show --no-patch --format='%H%n%s%n%an' "$commit" |
            jq -cRs 'split("\n") | {
                body: {event: "push", commit: .[0], subject: .[1], author: .[2]},
                dedupe_key: ("commit:" + .[0]),
                resource: ("git:" + .[0])
            }'
    done <commits | "$DORMOUSE" --json enqueue reviewer --batch --origin webhook:ci
}
deliver >first.jsonl
deliver >second.jsonl
admitted=$(jq -s 'map(select(.duplicate | not)) | length' first.jsonl)
repeated=$(jq -s 'map(select(.duplicate)) | length' second.jsonl)
echo "delivered twice: first $admitted admitted, then $repeated repeated"
echo

# Tick until the queue is empty. Exit status 7 means that a turn failed: its message is tried again after a pause.
rounds=0
while [ "$("$DORMOUSE" get reviewer queue.pending)" -gt 0 ]; do
    rounds=$((rounds + 1))
    [ "$rounds" -le 200 ] || fail "still not done after $rounds rounds"
    status=0
    "$DORMOUSE" tick reviewer --until-idle || status=$?
    [ "$status" -eq 0 ] || [ "$status" -eq 7 ] || fail "tick ended with status $status"
    sleep 0.1 2>/dev/null || sleep 1
done

# Check that every commit has its note, that there is no other note, and that the records agree.
while read -r commit; do
    [ -s "notes/$commit.md" ] || fail "no note on $commit"
    grep -q "^Commit $commit " "notes/$commit.md" || fail "the note on $commit is on another"
done <commits
notes=$(find notes -name '*.md' | wc -l | tr -d ' ')
[ "$notes" -eq "$total" ] || fail "$notes notes on $total commits"
[ -z "$(find notes -name '.review.*')" ] || fail "a turn left something behind"
[ "$admitted" -eq "$total" ] && [ "$repeated" -eq "$total" ] || fail "the keys did not hold"
"$DORMOUSE" --json run list -a reviewer --limit 0 >runs.jsonl
completed=$(jq -s 'map(select(.terminal == "completed")) | length' runs.jsonl)
failed=$(jq -s 'map(select(.terminal == "failed")) | length' runs.jsonl)
[ "$completed" -eq "$total" ] || fail "$completed turns completed"
[ "$failed" -eq 1 ] || fail "$failed turns failed instead of one"
[ "$("$DORMOUSE" get reviewer queue.dead)" -eq 0 ] || fail "there are dead letters"
"$DORMOUSE" doctor >doctor.txt || { cat doctor.txt >&2; fail "the records are not in order"; }

echo
echo "the note on the newest commit:"
echo
sed 's/^/    /' "notes/$newest.md"
echo
echo "the briefs of the turns, newest first:"
"$DORMOUSE" briefs reviewer
echo
remarks=$(cat notes/*.md | grep -c '^- ' || true)
echo "$total commits, $notes notes, $remarks remarks; $completed turns completed, $failed failed and was tried again"
[ -z "$keep" ] || echo "kept in $work"
