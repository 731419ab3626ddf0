#!/bin/sh
# Two agents that share one checkout: while one works in it the other waits, and loses nothing.
#
#     sh examples/one-checkout.sh
#
# Builds the program first. Set DORMOUSE to use one that is there already.
set -eu

. "$(dirname -- "$0")/program.sh"
export DORMOUSE

work=$(mktemp -d "${TMPDIR:-/tmp}/dormouse-one-checkout.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
cd "$work"
# Only what this script makes: no other state directory, no turn that we may be inside of.
unset DORMOUSE_DIR DORMOUSE_AGENT DORMOUSE_RUN DORMOUSE_NOW

say() { printf '\n%s\n' "$*"; }
run() { printf '$ dormouse %s\n' "$*"; "$DORMOUSE" "$@"; }

say "1. One checkout. The builder knows it by its name, the writer by a link to it."
mkdir checkout
ln -s checkout link
mkfifo started go
cat >turn.sh <<'TURN'
#!/bin/sh
# A turn that must be alone: it fails if somebody else is at work.
set -eu
mkdir "$1/at-work" || { echo "somebody else is at work" >&2; exit 1; }
if [ "$DORMOUSE_AGENT" = builder ]; then
    # The builder says that it has begun, and works until it is told that this is enough.
    echo begun >started
    cat go >/dev/null
fi
echo "$DORMOUSE_AGENT" >>"$1/log"
rmdir "$1/at-work"
echo "done in $1"
TURN
chmod +x turn.sh
run init
for agent in builder:checkout writer:link; do
    cat >agent.toml <<POLICY
[turn]
command = ["./turn.sh", "${agent#*:}"]

[workspace]
path = "${agent#*:}"
mode = "exclusive"
POLICY
    run create "${agent%:*}" --from agent.toml >/dev/null
    run start "${agent%:*}"
    run enqueue "${agent%:*}" "Do your part"
done

say "2. The builder begins, in the background."
"$DORMOUSE" tick builder >builder.out &
builder=$!
cat started

say "3. The writer finds the place occupied, however it gets there. The step says by whom."
run tick writer
run explain writer

say "4. The builder comes to its end, and the next step of the writer continues."
echo >go
wait "$builder"
cat builder.out
run tick writer

say "5. Both have worked, one after the other, each at its first attempt."
cat checkout/log
run doctor
