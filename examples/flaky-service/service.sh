#!/bin/sh
# The service: unreachable for as many calls as the file `outage` says.
set -eu

echo call >>calls
left=$(cat outage)
if [ "$left" -gt 0 ]; then
    echo $((left - 1)) >outage
    echo "503 Service Unavailable" >&2
    exit 1
fi
echo "200 OK"
