#!/bin/sh
# First steps with dormouse: make an agent, send it messages, and watch one turn fail and be tried again.
#
#     sh examples/quickstart.sh
#
# Builds the program first, unless DORMOUSE names one. The build is not optimised; the tests use it too.
set -eu

. "$(dirname -- "$0")/program.sh"

work=$(mktemp -d "${TMPDIR:-/tmp}/dormouse-quickstart.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
cd "$work"
# Use only the state directory of this script, even inside a turn.
unset DORMOUSE_DIR DORMOUSE_AGENT DORMOUSE_RUN DORMOUSE_NOW

if [ -t 1 ]; then
    say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
else
    say() { printf '\n%s\n' "$*"; }
fi

# Prints a command and runs it. After `expect N` the next command must end with exit status N, else with 0.
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

say "1. Make a state directory and an agent. Its turn is a program; this one counts words."
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
description = "Counts the words of its messages"

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

say "5. The turn for this message fails at first. The tick exits with status 7."
touch tired
run enqueue greeter "Are you tired?" --origin webhook:friend --dedupe-key friend-1
expect 7
run tick greeter

say "6. A repeated message with the same dedupe key is dropped."
run --json enqueue greeter "Are you tired?" --origin webhook:friend --dedupe-key friend-1

say "7. After the pause the next tick recovers, and the message gets its second attempt."
sleep 0.3 2>/dev/null || sleep 1
run tick greeter --until-idle

say "8. The state of the agent, and the results of its turns."
run get greeter
run briefs greeter

say "9. The ledger has an event for each change."
run events greeter --kind message_admitted --kind message_settled --kind run_settled

say "10. \`doctor\` checks every record."
run doctor

say "The end. The state was a directory of plain files, and no process is left."
