#!/bin/sh
# The build: a real one, offline, as there is nothing to fetch.
#
# It first waits at a pipe for run.sh, so that there is always time to see what the agent does meanwhile.
set -eu

read -r _ <gate
cargo check --offline --color never --manifest-path greeting/Cargo.toml
