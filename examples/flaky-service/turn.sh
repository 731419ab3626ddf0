#!/bin/sh
# One turn: calls the service. That it failed is all that has to be said; when to try again, and
# whether at all, stands in agent.toml.
set -eu

answer=$(./service.sh)
echo "$answer, on attempt $DORMOUSE_ATTEMPT"
