#!/bin/sh
# One turn: calls the service, and fails if the service fails. The retries are set in agent.toml.
set -eu

answer=$(./service.sh)
echo "$answer, on attempt $DORMOUSE_ATTEMPT"
