#!/bin/sh
# The task: `cargo check` without a network.
#
# The script first waits for run.sh at a pipe, so that run.sh can show the agent during the build.
set -eu

read -r _ <gate
cargo check --offline --color never --manifest-path greeting/Cargo.toml
