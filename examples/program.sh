#!/bin/sh
# For the scripts of these examples, which read it with `.`: sets DORMOUSE to the full path of the program, which is
# built where DORMOUSE names none yet.

if [ -z "${DORMOUSE:-}" ]; then
    command -v cargo >/dev/null || {
        echo "building dormouse needs Rust 1.91 or newer: https://rustup.rs" >&2
        exit 1
    }
    echo "building dormouse (set DORMOUSE=/path/to/dormouse to skip this)"
    project=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
    while [ ! -e "$project/examples/program.sh" ]; do project=$(dirname -- "$project"); done
    # The last line that names an executable is ours, wherever the build directory is.
    DORMOUSE=$(cd "$project" && cargo build --message-format=json-render-diagnostics |
        sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
    [ -n "$DORMOUSE" ] || {
        echo "dormouse could not be built: cargo says why above" >&2
        exit 1
    }
fi
case $DORMOUSE in /*) ;; *) DORMOUSE=$(pwd)/$DORMOUSE ;; esac
