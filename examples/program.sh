#!/bin/sh
# The scripts of the examples read this file with `.`. It sets DORMOUSE to the full path of the program, and builds the
# program if DORMOUSE is not set.

if [ -z "${DORMOUSE:-}" ]; then
    command -v cargo >/dev/null || {
        echo "building dormouse needs Rust 1.91 or newer: https://rustup.rs" >&2
        exit 1
    }
    echo "building dormouse (set DORMOUSE=/path/to/dormouse to skip this)"
    project=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
    while [ ! -e "$project/examples/program.sh" ]; do project=$(dirname -- "$project"); done
    # cargo prints the program's path last. The path depends on cargo's settings.
    DORMOUSE=$(cd "$project" && cargo build --message-format=json-render-diagnostics |
        sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
    [ -n "$DORMOUSE" ] || {
        echo "dormouse could not be built: cargo says why above" >&2
        exit 1
    }
fi
case $DORMOUSE in /*) ;; *) DORMOUSE=$(pwd)/$DORMOUSE ;; esac
