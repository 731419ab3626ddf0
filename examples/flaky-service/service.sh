#!/bin/sh
# The service: fails for the number of calls in the file `outage`.
set -eu

echo call >>calls
left=$(cat outage)
if [ "$left" -gt 0 ]; then
    echo $((left - 1)) >outage
    echo "503 Service Unavailable" >&2
    exit 1
fi
echo "200 OK"
