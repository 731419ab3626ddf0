#!/usr/bin/env bash
# Takes a guard out of the program and lets a storm loose on it: the storm must object.
#
#   tests/it/storm/unguarded.sh              each guard in turn
#   tests/it/storm/unguarded.sh lease dedupe   these
#
# The guards whose names begin with `base-` are those of records in a database, and so is their storm.
#
# It works in a copy of the sources, $STORM_SCRATCH (one in the temporary directory, unless set), which it
# keeps: what is built once serves all guards. DORMOUSE_STORM is how many seconds each storm lasts, 30
# unless set. STORM_TESTS names the test program; it is built unless set. A guard whose place can't be found was moved: its line below has to follow.
set -euo pipefail
cd "$(dirname "$0")/../../.."
scratch=${STORM_SCRATCH:-${TMPDIR:-/tmp}/dormouse-unguarded}
export DORMOUSE_STORM=${DORMOUSE_STORM:-30}

# name, file, what stands there, what is to stand there
guards() {
    guard lease src/local/lock.rs 'path: &Path) -> Result<bool> {
    let tried' 'path: &Path) -> Result<bool> {
    if path.ends_with("run.lock") { return Ok(true); }
    let tried'
    guard lock src/local/lock.rs 'path: &Path) -> Result<bool> {
    let tried' 'path: &Path) -> Result<bool> {
    if path.ends_with("lock") { return Ok(true); }
    let tried'
    guard journal src/store/dir/change.rs 'journal.commit(&line, disk)?;' ''
    guard recovery src/store/dir/change.rs 'journal::changes(found.entries()).apply(dir, disk)?;' ''
    guard remains src/engine/effects.rs 'LeftoverProcesses::find(&ProcessMark::run(run_id), &leader)?.end(KILL_GRACE)?;' \
        'LeftoverProcesses::find(&ProcessMark::run(run_id), &leader)?;'
    guard arrival src/commands/messages/mod.rs 'agent.add_message(&message)?;' 'let _ = agent.add_message(&message);'
    guard outbox src/engine/outbox.rs 'let known = known_ids(&other, messages)?;' 'let known: HashSet<MessageId> = HashSet::new();'
    guard dedupe src/store/dir/snapshot.rs 'dedupe::find(self, &self.view, key, window, self.agent.store.disk)' \
        'dedupe::find(self, &self.view, key, window, self.agent.store.disk).map(|_| None)'
    guard base-lock src/store/postgres/statements.rs 'WHERE s.agent_id = $1 FOR UPDATE{nowait}"' \
        'WHERE s.agent_id = $1 /* {nowait} */"'
    guard base-lease src/store/postgres/txn.rs 'if !is_ours && !is_renewed {' 'if false {'
    guard base-fate src/store/postgres/change.rs 'Some("aborted") => return Ok(false)' 'Some("aborted") => return Ok(true)'
    guard drop src/engine/submissions.rs 'admitted.push(taken);' \
        'locked.local().remove_submission(&taken)?; admitted.push(taken);'
}

guard() {
    case " $chosen " in *" $1 "* | "  ") ;; *) return 0 ;; esac
    git ls-files -z -- src Cargo.toml Cargo.lock .cargo man completions schemas benches tests/it/main.rs |
        tar --create --null --files-from - | tar --extract --directory "$scratch"
    if ! FROM=$3 TO=$4 perl -0pi -e '$n = s/\Q$ENV{FROM}\E/$ENV{TO}/; END { exit !$n }' "$scratch/$2"; then
        echo "$1: its place in $2 was not found" >&2
        failed=1
        return 0
    fi
    (cd "$scratch" && cargo build --quiet --bin dormouse --target-dir target 2>"$scratch/build") ||
        { cat "$scratch/build" >&2; exit 1; }
    program=$(ls -t "$scratch"/target/*/debug/dormouse | head -n 1)
    started=$SECONDS
    case $1 in base-*) over=a_storm_over_a_database ;; *) over=a_storm_loses ;; esac
    if DORMOUSE_STORM_PROGRAM=$program RUST_BACKTRACE=0 "$storm" "$over" --nocapture >"$scratch/$1.log" 2>&1; then
        echo "$1: NOT CAUGHT in $((SECONDS - started)) s"
        failed=1
    else
        echo "$1: caught in $((SECONDS - started)) s: $(grep -A 1 panicked "$scratch/$1.log" | sed -n 2p | cut -c 1-200)"
    fi
}

chosen="$*"
failed=0
mkdir -p "$scratch"
storm=${STORM_TESTS:-$(cargo test --no-run --test it --message-format json 2>/dev/null |
    grep -o '"executable":"[^"]*"' | tail -n 1 | cut -d '"' -f 4)}
guards
exit "$failed"
