#!/bin/sh
# Prints the numbers of `dormouse metrics` as a table, a line for each agent.
#
#     dormouse metrics | sh examples/fleet/dashboard.sh
set -eu
awk '
function of(label,   rest) {
    rest = $0
    if (!sub(".*[{,]" label "=\"", "", rest)) return ""
    sub("\".*", "", rest)
    return rest
}
/^#/ { next }
/^dormouse_agent_posture\{/ { agents[++count] = of("agent"); posture[of("agent")] = of("posture") }
/^dormouse_agent_queue_messages\{/ { queue[of("agent")] = $NF }
/^dormouse_agent_dead_letters\{/ { dead[of("agent")] = $NF }
/^dormouse_agent_turns_total\{/ {
    turns[of("agent")] += $NF
    if (of("terminal") == "completed") completed[of("agent")] = $NF
}
END {
    printf "%-16s %-18s %6s %6s %10s %6s\n", "AGENT", "POSTURE", "QUEUE", "TURNS", "COMPLETED", "DEAD"
    for (at = 1; at <= count; at++) {
        name = agents[at]
        printf "%-16s %-18s %6d %6d %10d %6d\n", name, posture[name], queue[name], turns[name], completed[name], dead[name]
    }
}'
