#!/bin/sh
# A first walk with dormouse: make an agent, give it something to do, watch it fail once and come back.
#
#     sh examples/quickstart.sh
#
# Builds the program first, unoptimised: the tests use the same build.
# Set DORMOUSE to use one that is there already.
set -eu

. "$(dirname -- "$0")/program.sh"

work=$(mktemp -d "${TMPDIR:-/tmp}/dormouse-quickstart.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
cd "$work"
# Only what this script makes: no other state directory, no turn that we may be inside of.
unset DORMOUSE_DIR DORMOUSE_AGENT DORMOUSE_RUN DORMOUSE_NOW

if [ -t 1 ]; then
    say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
else
    say() { printf '\n%s\n' "$*"; }
fi

# Shows a command, then runs it. `expect N` before it says with which status it ends.
expected=0
expect() { expected=$1; }
run() {
    printf '$ dormouse'
    for word; do
        case $word in
            *[!A-Za-z0-9_./:=-]* | '') printf " '%s'" "$word" ;;
            *) printf ' %s' "$word" ;;
        esac
    done
    printf '\n'
    status=0
    "$DORMOUSE" "$@" || status=$?
    if [ "$status" -ne "$expected" ]; then
        echo "quickstart: exit status $status, expected $expected" >&2
        exit 1
    fi
    expected=0
}

say "1. A state directory, and an agent in it. Its turn is any program; this one greets."
cat >greet.sh <<'TURN'
#!/bin/sh
# A turn: the prompt is on stdin, the answer is the last line of stdout.
words=$(wc -w)
if [ "$DORMOUSE_ATTEMPT" -eq 1 ] && [ -e tired ]; then
    rm tired
    echo "not in the mood yet" >&2
    exit 1
fi
echo "read $words words on attempt $DORMOUSE_ATTEMPT"
TURN
chmod +x greet.sh
run init
cat >greeter.toml <<'POLICY'
description = "Reads what it is told and says how much it was"

[turn]
command = ["./greet.sh"]
stdin = "prompt"

[recovery]
base = "200ms"
POLICY
run create greeter --from greeter.toml

say "2. A new agent does nothing until it is started. Messages wait for it."
run enqueue greeter "Good morning, how are you?" 2>&1
run tick greeter
run start greeter

say "3. What would the next step do, and why?"
run explain greeter

say "4. One step, one turn."
run tick greeter

say "5. Now one that fails the first time. Exit status 7 says so."
touch tired
run enqueue greeter "Are you tired?" --origin webhook:friend --dedupe-key friend-1
expect 7
run tick greeter

say "6. The same message again is no second message: the key is known."
run --json enqueue greeter "Are you tired?" --origin webhook:friend --dedupe-key friend-1

say "7. After the pause the next tick recovers, and the message gets its second attempt."
sleep 0.3 2>/dev/null || sleep 1
run tick greeter --until-idle

say "8. How does it stand, and what did it say?"
run get greeter
run briefs greeter

say "9. Everything that happened is in the ledger."
run events greeter --kind message_admitted --kind message_settled --kind run_settled

say "10. Every record can be checked."
run doctor

say "That was all of it: a directory of plain files, and nothing runs now."
