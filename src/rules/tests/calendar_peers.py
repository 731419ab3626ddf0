"""Prints when croniter and cronsim fire.

Reads lines of expression, zone, moment and count, separated by tabs. Writes a line for each: the moments of croniter,
a tab, and those of cronsim; or `!` for a library that refuses the expression.
"""

import datetime
import sys
import zoneinfo

from croniter import croniter
from cronsim import CronSim

# The package tzdata, not the machine's files, which may be older.
zoneinfo.reset_tzpath(to=[])


def shown(fires, count):
    try:
        return " ".join(str(int(next(fires).timestamp())) for _ in range(count))
    except Exception:
        return "!"


def of_croniter(expression, start):
    # Without this croniter takes any star within a field for one at its beginning.
    fires = croniter(expression, start, implement_cron_bug=True)
    while True:
        yield fires.get_next(datetime.datetime)


def of_cronsim(expression, start):
    yield from CronSim(expression, start)


for line in sys.stdin:
    expression, zone, moment, count = line.rstrip("\n").split("\t")
    start = datetime.datetime.fromtimestamp(int(moment), zoneinfo.ZoneInfo(zone))
    print(*(shown(of(expression, start), int(count)) for of in (of_croniter, of_cronsim)), sep="\t")
