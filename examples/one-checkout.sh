#!/bin/sh
# Two agents share one checkout. While one works in it, the other waits, and its attempt does not count.
#
#     sh examples/one-checkout.sh
#
# Builds the program first, unless DORMOUSE names one.
set -eu

. "$(dirname -- "$0")/program.sh"
export DORMOUSE

work=$(mktemp -d "${TMPDIR:-/tmp}/dormouse-one-checkout.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
cd "$work"
# Use only the state directory of this script, even inside a turn.
unset DORMOUSE_DIR DORMOUSE_AGENT DORMOUSE_RUN DORMOUSE_NOW

say() { printf '\n%s\n' "$*"; }
run() { printf '$ dormouse %s\n' "$*"; "$DORMOUSE" "$@"; }

say "1. One checkout. The builder uses its path, the writer a symbolic link to it."
mkdir checkout
ln -s checkout link
mkfifo started go
cat >turn.sh <<'TURN'
#!/bin/sh
# A turn that must be alone in the checkout: it fails if another turn is at work.
set -eu
mkdir "$1/at-work" || { echo "another turn is at work" >&2; exit 1; }
if [ "$DORMOUSE_AGENT" = builder ]; then
    # The builder reports its start, and works until this script lets it end.
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

say "2. The builder's turn runs in the background."
"$DORMOUSE" tick builder >builder.out &
builder=$!
cat started

say "3. The checkout is occupied, also by its other path. The writer's step names the builder."
run tick writer
run explain writer

say "4. The builder's turn ends, and the writer's next step runs its turn."
echo >go
wait "$builder"
cat builder.out
run tick writer

say "5. Both turns have run, one after the other, each in its first attempt."
cat checkout/log
run doctor
