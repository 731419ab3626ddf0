# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_dormouse_global_optspecs
    string join \n C/dir= json q/quiet v/verbose color= lock-timeout= h/help V/version
end

function __fish_dormouse_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_dormouse_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_dormouse_using_subcommand
    set -l cmd (__fish_dormouse_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c dormouse -n "__fish_dormouse_needs_command" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_needs_command" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_needs_command" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_needs_command" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_needs_command" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_needs_command" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_needs_command" -s V -l version -d 'Print version'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "init" -d 'Make a state directory'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "create" -d 'Make a new agent'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "start" -d 'Start agents, so that ticks run them'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "stop" -d 'Stop agents and end what they run'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "pause" -d 'Deprecated: use stop'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "enqueue" -d 'Send a message to an agent'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "ask" -d 'Send a message to an agent and wait for its answer'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "wake" -d 'Tell an agent that something may have changed'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "tick" -d 'Run one step of an agent: do what comes next'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "get" -d 'Show a summary of an agent'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "list" -d 'List agents, a line each'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "explain" -d 'Say what the next step would do, and why'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "state" -d 'Show the execution state of an agent: since when, why, and which states can follow'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "await" -d 'Wait until agents have a posture or status, or a message is settled'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "next-wake" -d 'Say when the next step is due'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "queue" -d 'Look at messages, and deal with dead letters'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "work" -d 'Work items: what an agent has set out to do'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "wait" -d 'Record why work can\'t go on, and what would end that'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "timer" -d 'Timers: messages that are sent at a set time'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "task" -d 'Background tasks, which outlive the turn that starts them'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "trigger" -d 'Capabilities by which outside systems reach an agent'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "ingress" -d 'Answer one HTTP request, and end'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "supervise" -d 'Look after a task; `task start` runs this'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "run" -d 'Look at turns'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "briefs" -d 'Show the briefs of turns, newest first'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "events" -d 'Show what happened, oldest first'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "metrics" -d 'Print numbers about all agents for Prometheus'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "recover" -d 'Let a failed agent go on at once, or retry a message that is put off'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "fail" -d 'Fail what an agent is doing: a turn, a message that waits to go on, a stop or a recovery'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "preempt" -d 'Ask a running turn to yield'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "resume" -d 'Let suspended runs go on'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "safe-point" -d 'Ask whether to go on, from inside a turn'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "checkpoint" -d 'Save what this turn needs to go on, from inside a turn'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "yield" -d 'Suspend this turn, from inside it'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "non-preemptible" -d 'Run a command that must not be preempted, from inside a turn'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "doctor" -d 'Check every record'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "gc" -d 'Drop what is kept no longer, and pack old months'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "export" -d 'Write agents as a stream, to be imported elsewhere'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "import" -d 'Read agents from a stream that export wrote'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "sync" -d 'Exchange what clones of this state directory have done, through git'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "merge-driver" -d 'Merge two versions of a file of the state directory, for git'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "service" -d 'Print what makes a machine tick this state directory'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "schema" -d 'Print the JSON Schema of a record, or of what a turn gets and gives'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "check-outcome" -d 'Check the outcome of a turn before the turn ends'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "completions" -d 'Print the completions of a shell'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "man" -d 'Print a manual page'
complete -c dormouse -n "__fish_dormouse_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dormouse -n "__fish_dormouse_using_subcommand init" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand init" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand init" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand init" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand init" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand init" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand init" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand create" -l shell -d 'The turn command as one line for sh' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand create" -l from -d 'Take this file as its agent.toml' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand create" -l template -d 'An agent that runs a script, asks a language model, reviews commits or works every night' -r -f -a "script\t''
llm\t''
reviewer\t''
nightly\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand create" -l description -d 'What the agent is for' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand create" -l parent -d 'The agent that owns it, as a private child. Inside a turn or task: always its agent' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand create" -l profile -d 'The table [profiles.NAME] of dormouse.toml whose keys are its defaults' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand create" -l visibility -d 'Which senders it takes messages from: every agent, or only the operator, its parent and its triggers [default: public; of a child: private]' -r -f -a "public\t''
private\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand create" -l secret-file -d 'Write the secret of its trigger to this new file, which only you can read, and show it nowhere' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand create" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand create" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand create" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand create" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand create" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand create" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand create" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand start" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand start" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand start" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand start" -l all -d 'Every agent'
complete -c dormouse -n "__fish_dormouse_using_subcommand start" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand start" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand start" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand start" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand stop" -l grace -d 'How long a running turn may take to end by itself [default: timeouts.shutdown, 30s]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand stop" -l reason -d 'Why, for the ledger' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand stop" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand stop" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand stop" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand stop" -l all -d 'Every agent'
complete -c dormouse -n "__fish_dormouse_using_subcommand stop" -l now -d 'Don\'t wait for a critical section of the turn'
complete -c dormouse -n "__fish_dormouse_using_subcommand stop" -l requeue -d 'Put the message of a running turn back into the queue instead of aborting it; also a message that is put off or suspended'
complete -c dormouse -n "__fish_dormouse_using_subcommand stop" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand stop" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand stop" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand stop" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand pause" -l grace -d 'How long a running turn may take to end by itself [default: timeouts.shutdown, 30s]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand pause" -l reason -d 'Why, for the ledger' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand pause" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand pause" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand pause" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand pause" -l all -d 'Every agent'
complete -c dormouse -n "__fish_dormouse_using_subcommand pause" -l now -d 'Don\'t wait for a critical section of the turn'
complete -c dormouse -n "__fish_dormouse_using_subcommand pause" -l requeue -d 'Put the message of a running turn back into the queue instead of aborting it; also a message that is put off or suspended'
complete -c dormouse -n "__fish_dormouse_using_subcommand pause" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand pause" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand pause" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand pause" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand enqueue" -l body-json -d 'A JSON body instead of text: the JSON itself, `@FILE`, or `-` for stdin' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand enqueue" -l kind -d 'The message kind [default: the first that the origin may send]' -r -f -a "operator_prompt\t''
control\t''
channel_event\t''
webhook_event\t''
callback_event\t''
internal_followup\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand enqueue" -l origin -d 'The sender: operator, channel, webhook or callback, with or without a name (`webhook:ci`) [default: operator]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand enqueue" -l priority -d 'Which messages are taken up first; only the operator can interject [default: normal]' -r -f -a "interject\t''
next\t''
normal\t''
background\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand enqueue" -l dedupe-key -d 'Admit only one message under this key within 24 hours, and print its id for a repeat' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand enqueue" -l ttl -d 'Drop the message if no step has taken it up after this long' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand enqueue" -l resource -d 'What the message is about, for example `github:org/repo#12`' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand enqueue" -l work-item -d 'The open work item that the message belongs to' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand enqueue" -l wait -d 'The active wait that the message answers' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand enqueue" -l correlation-id -d 'An id that ties the message to other messages' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand enqueue" -l in -d 'Admit the message after this long, by a timer' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand enqueue" -l at -d 'Admit the message at this time, by a timer' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand enqueue" -l timeout -d 'With --await: exit with 8 after this long; the message stays queued' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand enqueue" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand enqueue" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand enqueue" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand enqueue" -l allow-empty -d 'Accept a blank message, which is refused otherwise'
complete -c dormouse -n "__fish_dormouse_using_subcommand enqueue" -l past-ok -d 'Accept a time for --at that is past: the next step then admits the message'
complete -c dormouse -n "__fish_dormouse_using_subcommand enqueue" -l batch -d 'Read one message per line of stdin, each a JSON object with text or body, and kind, origin, priority, dedupe_key, ttl, expires_at, resource, work_item_id, wait_id, correlation_id, allow_empty. If one line is bad, no message is admitted'
complete -c dormouse -n "__fish_dormouse_using_subcommand enqueue" -l await -d 'Wait until the message, or each of the batch, has ended, and print the brief of its turn. Exit with 0 if it was completed, with 7 if it failed for good'
complete -c dormouse -n "__fish_dormouse_using_subcommand enqueue" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand enqueue" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand enqueue" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand enqueue" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand ask" -l body-json -d 'A JSON body instead of text: the JSON itself, `@FILE`, or `-` for stdin' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand ask" -l kind -d 'The message kind [default: the first that the origin may send]' -r -f -a "operator_prompt\t''
control\t''
channel_event\t''
webhook_event\t''
callback_event\t''
internal_followup\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand ask" -l origin -d 'The sender: operator, channel, webhook or callback, with or without a name (`webhook:ci`) [default: operator]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand ask" -l priority -d 'Which messages are taken up first; only the operator can interject [default: normal]' -r -f -a "interject\t''
next\t''
normal\t''
background\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand ask" -l dedupe-key -d 'Admit only one message under this key within 24 hours, and print its id for a repeat' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand ask" -l ttl -d 'Drop the message if no step has taken it up after this long' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand ask" -l resource -d 'What the message is about, for example `github:org/repo#12`' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand ask" -l work-item -d 'The open work item that the message belongs to' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand ask" -l wait -d 'The active wait that the message answers' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand ask" -l correlation-id -d 'An id that ties the message to other messages' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand ask" -l timeout -d 'Begin no step after this long; a turn that runs at that time is not ended' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand ask" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand ask" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand ask" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand ask" -l allow-empty -d 'Accept a blank message, which is refused otherwise'
complete -c dormouse -n "__fish_dormouse_using_subcommand ask" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand ask" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand ask" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand ask" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand wake" -l source -d 'The source of the hint [default: operator; inside a turn, its agent]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand wake" -l resource -d 'What has changed, for example `github:org/repo#12`; this ends the waits for it' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand wake" -l wait -d 'The active wait that this ends' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand wake" -l trigger -d 'The trigger of the agent that this stands for: the hint is about what the trigger is scoped to' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand wake" -l reason -d 'Why the agent should look' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand wake" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand wake" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand wake" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand wake" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand wake" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand wake" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand wake" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand tick" -l max-steps -d 'With --until-idle: at most this many steps per agent' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand tick" -l jobs -d 'How many agents are ticked at once' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand tick" -l push -d 'Take each agent by a push to this remote, or the branch\'s own, and push what came of its step' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand tick" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand tick" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand tick" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand tick" -l all -d 'Every agent'
complete -c dormouse -n "__fish_dormouse_using_subcommand tick" -l until-idle -d 'Run steps until one finds nothing to do'
complete -c dormouse -n "__fish_dormouse_using_subcommand tick" -l follow -d 'Stay in the foreground, and run a step of an agent whenever it has something to do. SIGTERM and SIGINT let running turns end, and a second one ends them; SIGHUP reads the settings again'
complete -c dormouse -n "__fish_dormouse_using_subcommand tick" -l dry-run -d 'Print what a step would do, and change nothing'
complete -c dormouse -n "__fish_dormouse_using_subcommand tick" -l exit-code -d 'Exit with 10 if no step did anything'
complete -c dormouse -n "__fish_dormouse_using_subcommand tick" -l commit -d 'Make a git commit of the state directory for each step that changed something'
complete -c dormouse -n "__fish_dormouse_using_subcommand tick" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand tick" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand tick" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand tick" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand get" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand get" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand get" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand get" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand get" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand get" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand get" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand list" -l posture -d 'Only agents of this posture (may be repeated)' -r -f -a "archived\t''
active_turn\t''
has_queued_input\t''
has_runnable_work\t''
waiting_for_task\t''
waiting_for_external\t''
waiting_for_operator\t''
blocked\t''
idle\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand list" -l status -d 'Only agents of this status (may be repeated)' -r -f -a "booting\t''
awake_idle\t''
awake_running\t''
awaiting_task\t''
asleep\t''
stopped\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand list" -l kind -d 'Only agents of this kind' -r -f -a "named\t''
child\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand list" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand list" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand list" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand list" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand list" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand list" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand explain" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand explain" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand explain" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand explain" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand explain" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand explain" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand explain" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand state" -l can -d 'Tell by the exit status whether this state, a name or its code, can follow: 0 yes, 4 no' -r -f -a "initializing\t''
runnable\t''
scheduled\t''
running\t''
waiting\t''
waiting_resources\t''
suspended\t''
resumed\t''
completed\t''
failed\t''
shutting_down\t''
recovering\t''
0\t''
1\t''
2\t''
3\t''
4\t''
5\t''
6\t''
7\t''
8\t''
9\t''
10\t''
11\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand state" -l diagram -d 'Print the machine as a diagram with the current state marked' -r -f -a "mermaid\t''
dot\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand state" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand state" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand state" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand state" -l hooks -d 'List the installed hooks, their paths, and which of them run'
complete -c dormouse -n "__fish_dormouse_using_subcommand state" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand state" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand state" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand state" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand await" -l posture -d 'Until an agent has this posture (or, repeated, one of these)' -r -f -a "archived\t''
active_turn\t''
has_queued_input\t''
has_runnable_work\t''
waiting_for_task\t''
waiting_for_external\t''
waiting_for_operator\t''
blocked\t''
idle\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand await" -l status -d 'Until an agent has this status (or, repeated, one of these)' -r -f -a "booting\t''
awake_idle\t''
awake_running\t''
awaiting_task\t''
asleep\t''
stopped\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand await" -l message -d 'Until this message is settled: exit status 0 if it was completed, 7 if it failed for good' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand await" -l timeout -d 'Give up after this long' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand await" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand await" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand await" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand await" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand await" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand await" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand await" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand next-wake" -l format -d 'How to print the time' -r -f -a "rfc3339\t''
epoch\t''
systemd\t'For OnCalendar= of a systemd timer'"
complete -c dormouse -n "__fish_dormouse_using_subcommand next-wake" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand next-wake" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand next-wake" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand next-wake" -l all -d 'Every agent'
complete -c dormouse -n "__fish_dormouse_using_subcommand next-wake" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand next-wake" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand next-wake" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand next-wake" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and not __fish_seen_subcommand_from list show dead rejected requeue drop help" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and not __fish_seen_subcommand_from list show dead rejected requeue drop help" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and not __fish_seen_subcommand_from list show dead rejected requeue drop help" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and not __fish_seen_subcommand_from list show dead rejected requeue drop help" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and not __fish_seen_subcommand_from list show dead rejected requeue drop help" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and not __fish_seen_subcommand_from list show dead rejected requeue drop help" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and not __fish_seen_subcommand_from list show dead rejected requeue drop help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and not __fish_seen_subcommand_from list show dead rejected requeue drop help" -f -a "list" -d 'List queued messages in processing order'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and not __fish_seen_subcommand_from list show dead rejected requeue drop help" -f -a "show" -d 'Show one message, queued or ended'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and not __fish_seen_subcommand_from list show dead rejected requeue drop help" -f -a "dead" -d 'List dead letters: messages that failed for the last time'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and not __fish_seen_subcommand_from list show dead rejected requeue drop help" -f -a "rejected" -d 'List files that could not be admitted, and deal with them'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and not __fish_seen_subcommand_from list show dead rejected requeue drop help" -f -a "requeue" -d 'Put a dead, aborted or dropped message back into the queue'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and not __fish_seen_subcommand_from list show dead rejected requeue drop help" -f -a "drop" -d 'Drop a message that is queued, put off or suspended, or a dead letter'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and not __fish_seen_subcommand_from list show dead rejected requeue drop help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from list" -s a -l agent -d 'The agent [default: $DORMOUSE_AGENT; not needed where an id is given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from list" -l limit -d 'At most this many; 0 for all' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from list" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from list" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from list" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from list" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from list" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from list" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from show" -s a -l agent -d 'The agent [default: $DORMOUSE_AGENT; not needed where an id is given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from show" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from show" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from show" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from show" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from show" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from show" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from dead" -s a -l agent -d 'The agent [default: $DORMOUSE_AGENT; not needed where an id is given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from dead" -l ack -d 'Acknowledge what needs attention instead of listing it: everything, be it a dead letter or not, or only what names one of these ids or files. No message is changed' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from dead" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from dead" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from dead" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from dead" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from dead" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from dead" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from dead" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from rejected" -s a -l agent -d 'The agent [default: $DORMOUSE_AGENT; not needed where an id is given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from rejected" -l accept -d 'Try these files again: each goes back into the inbox, or stays and the reason is said' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from rejected" -l drop -d 'Remove these files for good. No other command does' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from rejected" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from rejected" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from rejected" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from rejected" -l all -d 'With --accept or --drop: all of them'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from rejected" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from rejected" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from rejected" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from rejected" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from requeue" -s a -l agent -d 'The agent [default: $DORMOUSE_AGENT; not needed where an id is given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from requeue" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from requeue" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from requeue" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from requeue" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from requeue" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from requeue" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from requeue" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from drop" -s a -l agent -d 'The agent [default: $DORMOUSE_AGENT; not needed where an id is given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from drop" -l reason -d 'Why, for the ledger' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from drop" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from drop" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from drop" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from drop" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from drop" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from drop" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from drop" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from help" -f -a "list" -d 'List queued messages in processing order'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from help" -f -a "show" -d 'Show one message, queued or ended'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from help" -f -a "dead" -d 'List dead letters: messages that failed for the last time'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from help" -f -a "rejected" -d 'List files that could not be admitted, and deal with them'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from help" -f -a "requeue" -d 'Put a dead, aborted or dropped message back into the queue'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from help" -f -a "drop" -d 'Drop a message that is queued, put off or suspended, or a dead letter'
complete -c dormouse -n "__fish_dormouse_using_subcommand queue; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and not __fish_seen_subcommand_from add list show update pick block unblock complete plan help" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and not __fish_seen_subcommand_from add list show update pick block unblock complete plan help" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and not __fish_seen_subcommand_from add list show update pick block unblock complete plan help" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and not __fish_seen_subcommand_from add list show update pick block unblock complete plan help" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and not __fish_seen_subcommand_from add list show update pick block unblock complete plan help" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and not __fish_seen_subcommand_from add list show update pick block unblock complete plan help" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and not __fish_seen_subcommand_from add list show update pick block unblock complete plan help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and not __fish_seen_subcommand_from add list show update pick block unblock complete plan help" -f -a "add" -d 'Add a work item'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and not __fish_seen_subcommand_from add list show update pick block unblock complete plan help" -f -a "list" -d 'List work items, oldest first'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and not __fish_seen_subcommand_from add list show update pick block unblock complete plan help" -f -a "show" -d 'Show one work item with its plan'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and not __fish_seen_subcommand_from add list show update pick block unblock complete plan help" -f -a "update" -d 'Change a work item; it becomes eligible for another tick'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and not __fish_seen_subcommand_from add list show update pick block unblock complete plan help" -f -a "pick" -d 'Make an item the current item'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and not __fish_seen_subcommand_from add list show update pick block unblock complete plan help" -f -a "block" -d 'Record what blocks an item'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and not __fish_seen_subcommand_from add list show update pick block unblock complete plan help" -f -a "unblock" -d 'Record that nothing blocks an item any more'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and not __fish_seen_subcommand_from add list show update pick block unblock complete plan help" -f -a "complete" -d 'Complete an item: its waits are cancelled, its blocker cleared, the focus taken from it'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and not __fish_seen_subcommand_from add list show update pick block unblock complete plan help" -f -a "plan" -d 'Print the plan of an item, or replace it'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and not __fish_seen_subcommand_from add list show update pick block unblock complete plan help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from add" -s a -l agent -d 'The agent [default: $DORMOUSE_AGENT; not needed where an id is given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from add" -l plan-status -d 'How far its plan has come [default: ready]' -r -f -a "draft\t''
ready\t''
needs_input\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from add" -l todo -d 'A step of the item (may be repeated)' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from add" -l plan -d 'Its plan in prose: the text itself, `@FILE`, or `-` for stdin' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from add" -l blocked-by -d 'What blocks it from the start' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from add" -l recheck -d 'Remind the agent of the blocker after this long' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from add" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from add" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from add" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from add" -l pick -d 'Make it the current item'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from add" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from add" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from add" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from add" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from list" -s a -l agent -d 'The agent [default: $DORMOUSE_AGENT; not needed where an id is given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from list" -l state -d 'Open or completed items [default: open]' -r -f -a "open\t''
completed\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from list" -l scheduling-state -d 'Only items in this scheduling state' -r -f -a "completed\t''
waiting_task\t''
waiting_operator\t''
waiting_timer\t''
waiting_external\t''
waiting_system\t''
blocked\t''
runnable\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from list" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from list" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from list" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from list" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from list" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from list" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from show" -s a -l agent -d 'The agent [default: $DORMOUSE_AGENT; not needed where an id is given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from show" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from show" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from show" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from show" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from show" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from show" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from update" -s a -l agent -d 'The agent [default: $DORMOUSE_AGENT; not needed where an id is given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from update" -l objective -r
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from update" -l plan-status -r -f -a "draft\t''
ready\t''
needs_input\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from update" -l todo -d 'The new list of steps (may be repeated); `[x] TEXT` is done' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from update" -l plan -d 'Its plan in prose: the text itself, `@FILE`, or `-` for stdin' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from update" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from update" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from update" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from update" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from update" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from update" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from update" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from pick" -s a -l agent -d 'The agent [default: $DORMOUSE_AGENT; not needed where an id is given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from pick" -l reason -d 'Why they can be cleared' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from pick" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from pick" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from pick" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from pick" -l clear-blocker -d 'Clear its blocker, its recheck and its waits too'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from pick" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from pick" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from pick" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from pick" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from block" -s a -l agent -d 'The agent [default: $DORMOUSE_AGENT; not needed where an id is given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from block" -l reason -r
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from block" -l recheck -d 'Remind the agent of it after this long' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from block" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from block" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from block" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from block" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from block" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from block" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from block" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from unblock" -s a -l agent -d 'The agent [default: $DORMOUSE_AGENT; not needed where an id is given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from unblock" -l reason -r
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from unblock" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from unblock" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from unblock" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from unblock" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from unblock" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from unblock" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from unblock" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from complete" -s a -l agent -d 'The agent [default: $DORMOUSE_AGENT; not needed where an id is given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from complete" -l result -d 'The result of the work' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from complete" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from complete" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from complete" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from complete" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from complete" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from complete" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from complete" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from plan" -s a -l agent -d 'The agent [default: $DORMOUSE_AGENT; not needed where an id is given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from plan" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from plan" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from plan" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from plan" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from plan" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from plan" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from plan" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from help" -f -a "add" -d 'Add a work item'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from help" -f -a "list" -d 'List work items, oldest first'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from help" -f -a "show" -d 'Show one work item with its plan'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from help" -f -a "update" -d 'Change a work item; it becomes eligible for another tick'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from help" -f -a "pick" -d 'Make an item the current item'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from help" -f -a "block" -d 'Record what blocks an item'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from help" -f -a "unblock" -d 'Record that nothing blocks an item any more'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from help" -f -a "complete" -d 'Complete an item: its waits are cancelled, its blocker cleared, the focus taken from it'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from help" -f -a "plan" -d 'Print the plan of an item, or replace it'
complete -c dormouse -n "__fish_dormouse_using_subcommand work; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and not __fish_seen_subcommand_from list cancel help" -s a -l agent -d 'The agent [default: $DORMOUSE_AGENT; not needed where an id is given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and not __fish_seen_subcommand_from list cancel help" -l on -d 'What to wait for' -r -f -a "operator\t''
task\t''
external\t''
timer\t''
system\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and not __fish_seen_subcommand_from list cancel help" -l reason -d 'Why, for people' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and not __fish_seen_subcommand_from list cancel help" -l resource -d 'What exactly to wait for: a task\'s id, or a reference such as `github:org/repo#12`' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and not __fish_seen_subcommand_from list cancel help" -l work-item -d 'The work item that waits' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and not __fish_seen_subcommand_from list cancel help" -l in -d 'A timer wait: how long' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and not __fish_seen_subcommand_from list cancel help" -l at -d 'A timer wait: until when' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and not __fish_seen_subcommand_from list cancel help" -l recheck -d 'Tell the agent to go and look after this long; a system wait needs this or --expires' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and not __fish_seen_subcommand_from list cancel help" -l expires -d 'Give up after this long' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and not __fish_seen_subcommand_from list cancel help" -l no-fallback -d 'Why it is right that nothing else brings the agent back' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and not __fish_seen_subcommand_from list cancel help" -l source -d 'The sender that is expected, as in an origin: `webhook:github`, or `webhook` for any' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and not __fish_seen_subcommand_from list cancel help" -l trigger -d 'The trigger of the agent whose deliveries end an external or system wait' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and not __fish_seen_subcommand_from list cancel help" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and not __fish_seen_subcommand_from list cancel help" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and not __fish_seen_subcommand_from list cancel help" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and not __fish_seen_subcommand_from list cancel help" -l whole-agent -d 'The agent itself waits, whatever it works on'
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and not __fish_seen_subcommand_from list cancel help" -l past-ok -d 'Accept a time for --at that is past: the next step then ends the wait'
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and not __fish_seen_subcommand_from list cancel help" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and not __fish_seen_subcommand_from list cancel help" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and not __fish_seen_subcommand_from list cancel help" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and not __fish_seen_subcommand_from list cancel help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and not __fish_seen_subcommand_from list cancel help" -f -a "list" -d 'List active waits'
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and not __fish_seen_subcommand_from list cancel help" -f -a "cancel" -d 'Cancel a wait'
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and not __fish_seen_subcommand_from list cancel help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and __fish_seen_subcommand_from list" -s a -l agent -d 'The agent [default: $DORMOUSE_AGENT; not needed where an id is given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and __fish_seen_subcommand_from list" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and __fish_seen_subcommand_from list" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and __fish_seen_subcommand_from list" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and __fish_seen_subcommand_from list" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and __fish_seen_subcommand_from list" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and __fish_seen_subcommand_from list" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and __fish_seen_subcommand_from cancel" -s a -l agent -d 'The agent [default: $DORMOUSE_AGENT; not needed where an id is given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and __fish_seen_subcommand_from cancel" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and __fish_seen_subcommand_from cancel" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and __fish_seen_subcommand_from cancel" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and __fish_seen_subcommand_from cancel" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and __fish_seen_subcommand_from cancel" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and __fish_seen_subcommand_from cancel" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and __fish_seen_subcommand_from cancel" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and __fish_seen_subcommand_from help" -f -a "list" -d 'List active waits'
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and __fish_seen_subcommand_from help" -f -a "cancel" -d 'Cancel a wait'
complete -c dormouse -n "__fish_dormouse_using_subcommand wait; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and not __fish_seen_subcommand_from add list cancel help" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and not __fish_seen_subcommand_from add list cancel help" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and not __fish_seen_subcommand_from add list cancel help" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and not __fish_seen_subcommand_from add list cancel help" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and not __fish_seen_subcommand_from add list cancel help" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and not __fish_seen_subcommand_from add list cancel help" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and not __fish_seen_subcommand_from add list cancel help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and not __fish_seen_subcommand_from add list cancel help" -f -a "add" -d 'Add a timer'
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and not __fish_seen_subcommand_from add list cancel help" -f -a "list" -d 'List active timers'
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and not __fish_seen_subcommand_from add list cancel help" -f -a "cancel" -d 'Cancel a timer'
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and not __fish_seen_subcommand_from add list cancel help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and __fish_seen_subcommand_from add" -s a -l agent -d 'The agent [default: $DORMOUSE_AGENT; not needed where an id is given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and __fish_seen_subcommand_from add" -l in -d 'Once, after this long' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and __fish_seen_subcommand_from add" -l at -d 'Once, at this time' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and __fish_seen_subcommand_from add" -l every -d 'Again and again, counted from now' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and __fish_seen_subcommand_from add" -l cron -d 'By the calendar: minute hour day month weekday' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and __fish_seen_subcommand_from add" -l tz -d 'The time zone of --cron, like Europe/Berlin [default: the machine\'s]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and __fish_seen_subcommand_from add" -l catch-up -d 'What becomes of fires that were due while no tick came [default: once]' -r -f -a "once\t''
all\t''
skip\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and __fish_seen_subcommand_from add" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and __fish_seen_subcommand_from add" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and __fish_seen_subcommand_from add" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and __fish_seen_subcommand_from add" -l seconds -d 'An expression of six fields for --cron, the first of them seconds'
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and __fish_seen_subcommand_from add" -l past-ok -d 'Accept a time for --at that is past: the timer then fires with the next step'
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and __fish_seen_subcommand_from add" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and __fish_seen_subcommand_from add" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and __fish_seen_subcommand_from add" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and __fish_seen_subcommand_from add" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and __fish_seen_subcommand_from list" -s a -l agent -d 'The agent [default: $DORMOUSE_AGENT; not needed where an id is given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and __fish_seen_subcommand_from list" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and __fish_seen_subcommand_from list" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and __fish_seen_subcommand_from list" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and __fish_seen_subcommand_from list" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and __fish_seen_subcommand_from list" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and __fish_seen_subcommand_from list" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and __fish_seen_subcommand_from cancel" -s a -l agent -d 'The agent [default: $DORMOUSE_AGENT; not needed where an id is given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and __fish_seen_subcommand_from cancel" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and __fish_seen_subcommand_from cancel" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and __fish_seen_subcommand_from cancel" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and __fish_seen_subcommand_from cancel" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and __fish_seen_subcommand_from cancel" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and __fish_seen_subcommand_from cancel" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and __fish_seen_subcommand_from cancel" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and __fish_seen_subcommand_from help" -f -a "add" -d 'Add a timer'
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and __fish_seen_subcommand_from help" -f -a "list" -d 'List active timers'
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and __fish_seen_subcommand_from help" -f -a "cancel" -d 'Cancel a timer'
complete -c dormouse -n "__fish_dormouse_using_subcommand timer; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and not __fish_seen_subcommand_from start list status output input stop help" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and not __fish_seen_subcommand_from start list status output input stop help" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and not __fish_seen_subcommand_from start list status output input stop help" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and not __fish_seen_subcommand_from start list status output input stop help" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and not __fish_seen_subcommand_from start list status output input stop help" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and not __fish_seen_subcommand_from start list status output input stop help" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and not __fish_seen_subcommand_from start list status output input stop help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and not __fish_seen_subcommand_from start list status output input stop help" -f -a "start" -d 'Start a command in the background, or delegate work to a child; the result comes as a message'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and not __fish_seen_subcommand_from start list status output input stop help" -f -a "list" -d 'List open tasks, oldest first'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and not __fish_seen_subcommand_from start list status output input stop help" -f -a "status" -d 'Show one task, open or ended'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and not __fish_seen_subcommand_from start list status output input stop help" -f -a "output" -d 'Print the output of a task'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and not __fish_seen_subcommand_from start list status output input stop help" -f -a "input" -d 'Write a line to the stdin of a task that was started with --interactive'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and not __fish_seen_subcommand_from start list status output input stop help" -f -a "stop" -d 'End a task: SIGTERM, and SIGKILL when the grace is over'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and not __fish_seen_subcommand_from start list status output input stop help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from start" -s a -l agent -d 'The agent [default: $DORMOUSE_AGENT; not needed where an id is given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from start" -l summary -d 'What the task is for; its result begins with this' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from start" -l work-item -d 'The work item that the task is for' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from start" -l timeout -d 'End the task after this long' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from start" -l delegate -d 'Hand TEXT to this agent as its operator, and take its last brief as the result' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from start" -l from -d 'The agent.toml of a child that is made [default: that of its parent]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from start" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from start" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from start" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from start" -l no-notify -d 'Start no turn for the result: the next turn is told of it'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from start" -l interactive -d 'Let the command read what `task input` writes; without this its stdin is empty'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from start" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from start" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from start" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from start" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from list" -s a -l agent -d 'The agent [default: $DORMOUSE_AGENT; not needed where an id is given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from list" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from list" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from list" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from list" -l ended -d 'List tasks that have ended instead, newest first'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from list" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from list" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from list" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from status" -s a -l agent -d 'The agent [default: $DORMOUSE_AGENT; not needed where an id is given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from status" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from status" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from status" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from status" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from status" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from status" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from status" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from output" -s a -l agent -d 'The agent [default: $DORMOUSE_AGENT; not needed where an id is given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from output" -l bytes -d 'Only the last N bytes' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from output" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from output" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from output" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from output" -l stderr -d 'Print its stderr instead'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from output" -s f -l follow -d 'Go on printing until the task ends'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from output" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from output" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from output" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from output" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from input" -s a -l agent -d 'The agent [default: $DORMOUSE_AGENT; not needed where an id is given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from input" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from input" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from input" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from input" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from input" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from input" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from input" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from stop" -s a -l agent -d 'The agent [default: $DORMOUSE_AGENT; not needed where an id is given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from stop" -l grace -d 'How long the task may take to end by itself' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from stop" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from stop" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from stop" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from stop" -l force -d 'Count a task of another host as lost: only if that host is gone for good'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from stop" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from stop" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from stop" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from stop" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from help" -f -a "start" -d 'Start a command in the background, or delegate work to a child; the result comes as a message'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from help" -f -a "list" -d 'List open tasks, oldest first'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from help" -f -a "status" -d 'Show one task, open or ended'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from help" -f -a "output" -d 'Print the output of a task'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from help" -f -a "input" -d 'Write a line to the stdin of a task that was started with --interactive'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from help" -f -a "stop" -d 'End a task: SIGTERM, and SIGKILL when the grace is over'
complete -c dormouse -n "__fish_dormouse_using_subcommand task; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and not __fish_seen_subcommand_from create list show deliver rotate revoke help" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and not __fish_seen_subcommand_from create list show deliver rotate revoke help" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and not __fish_seen_subcommand_from create list show deliver rotate revoke help" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and not __fish_seen_subcommand_from create list show deliver rotate revoke help" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and not __fish_seen_subcommand_from create list show deliver rotate revoke help" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and not __fish_seen_subcommand_from create list show deliver rotate revoke help" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and not __fish_seen_subcommand_from create list show deliver rotate revoke help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and not __fish_seen_subcommand_from create list show deliver rotate revoke help" -f -a "create" -d 'Make a trigger'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and not __fish_seen_subcommand_from create list show deliver rotate revoke help" -f -a "list" -d 'List the active triggers of an agent'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and not __fish_seen_subcommand_from create list show deliver rotate revoke help" -f -a "show" -d 'Show one trigger, active or revoked'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and not __fish_seen_subcommand_from create list show deliver rotate revoke help" -f -a "deliver" -d 'Deliver through a trigger, as an outside system would'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and not __fish_seen_subcommand_from create list show deliver rotate revoke help" -f -a "rotate" -d 'Replace the secret of a trigger; the old one is worth nothing from then on'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and not __fish_seen_subcommand_from create list show deliver rotate revoke help" -f -a "revoke" -d 'Revoke a trigger for good; what it has delivered stays'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and not __fish_seen_subcommand_from create list show deliver rotate revoke help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from create" -s a -l agent -d 'The agent [default: $DORMOUSE_AGENT; not needed where an id is given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from create" -l mode -d 'What a delivery becomes: a message, or a hint that something has changed [default: enqueue_message]' -r -f -a "enqueue_message\t''
wake_hint\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from create" -l resource -d 'What every delivery is about, for example `github:org/repo#12`; this ends the waits for it' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from create" -l wait -d 'The active wait that a delivery ends. The trigger is revoked when the wait has ended' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from create" -l source -d 'In whose name deliveries speak: `webhook:NAME` or `callback:NAME` [default: webhook; with --wait: callback]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from create" -l verify -d 'How a delivery shows that its sender has the secret: it brings the secret along, or a signature of its body [default: secret]' -r -f -a "secret\t''
hmac_sha256\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from create" -l signature-header -d 'The header with the signature, with --verify hmac_sha256 [default: X-Hub-Signature-256]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from create" -l secret-file -d 'Write the secret to this new file, which only you can read, and show it nowhere' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from create" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from create" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from create" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from create" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from create" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from create" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from create" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from list" -s a -l agent -d 'The agent [default: $DORMOUSE_AGENT; not needed where an id is given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from list" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from list" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from list" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from list" -l all -d 'The revoked ones as well'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from list" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from list" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from list" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from show" -s a -l agent -d 'The agent [default: $DORMOUSE_AGENT; not needed where an id is given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from show" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from show" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from show" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from show" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from show" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from show" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from deliver" -s a -l agent -d 'The agent [default: $DORMOUSE_AGENT; not needed where an id is given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from deliver" -l secret-file -d 'The file with the secret; `-` for stdin' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from deliver" -l body-json -d 'A body in JSON: the JSON itself, `@FILE`, or `-` for stdin' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from deliver" -l dedupe-key -d 'Deliver at most once under this key within `limits.dedupe_window`' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from deliver" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from deliver" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from deliver" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from deliver" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from deliver" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from deliver" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from deliver" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from rotate" -s a -l agent -d 'The agent [default: $DORMOUSE_AGENT; not needed where an id is given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from rotate" -l secret-file -d 'Write the secret to this new file, which only you can read, and show it nowhere' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from rotate" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from rotate" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from rotate" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from rotate" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from rotate" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from rotate" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from rotate" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from revoke" -s a -l agent -d 'The agent [default: $DORMOUSE_AGENT; not needed where an id is given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from revoke" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from revoke" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from revoke" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from revoke" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from revoke" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from revoke" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from revoke" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from help" -f -a "create" -d 'Make a trigger'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from help" -f -a "list" -d 'List the active triggers of an agent'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from help" -f -a "show" -d 'Show one trigger, active or revoked'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from help" -f -a "deliver" -d 'Deliver through a trigger, as an outside system would'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from help" -f -a "rotate" -d 'Replace the secret of a trigger; the old one is worth nothing from then on'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from help" -f -a "revoke" -d 'Revoke a trigger for good; what it has delivered stays'
complete -c dormouse -n "__fish_dormouse_using_subcommand trigger; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dormouse -n "__fish_dormouse_using_subcommand ingress" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand ingress" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand ingress" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand ingress" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand ingress" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand ingress" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand ingress" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand supervise" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand supervise" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand supervise" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand supervise" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand supervise" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand supervise" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand supervise" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand run; and not __fish_seen_subcommand_from list show help" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand run; and not __fish_seen_subcommand_from list show help" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand run; and not __fish_seen_subcommand_from list show help" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand run; and not __fish_seen_subcommand_from list show help" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand run; and not __fish_seen_subcommand_from list show help" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand run; and not __fish_seen_subcommand_from list show help" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand run; and not __fish_seen_subcommand_from list show help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand run; and not __fish_seen_subcommand_from list show help" -f -a "list" -d 'List runs, newest first'
complete -c dormouse -n "__fish_dormouse_using_subcommand run; and not __fish_seen_subcommand_from list show help" -f -a "show" -d 'Show one run'
complete -c dormouse -n "__fish_dormouse_using_subcommand run; and not __fish_seen_subcommand_from list show help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dormouse -n "__fish_dormouse_using_subcommand run; and __fish_seen_subcommand_from list" -s a -l agent -d 'The agent [default: $DORMOUSE_AGENT; not needed where an id is given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand run; and __fish_seen_subcommand_from list" -l limit -d 'At most this many; 0 for all' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand run; and __fish_seen_subcommand_from list" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand run; and __fish_seen_subcommand_from list" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand run; and __fish_seen_subcommand_from list" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand run; and __fish_seen_subcommand_from list" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand run; and __fish_seen_subcommand_from list" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand run; and __fish_seen_subcommand_from list" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand run; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand run; and __fish_seen_subcommand_from show" -s a -l agent -d 'The agent [default: $DORMOUSE_AGENT; not needed where an id is given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand run; and __fish_seen_subcommand_from show" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand run; and __fish_seen_subcommand_from show" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand run; and __fish_seen_subcommand_from show" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand run; and __fish_seen_subcommand_from show" -l stdout -d 'Print what the turn wrote to stdout instead'
complete -c dormouse -n "__fish_dormouse_using_subcommand run; and __fish_seen_subcommand_from show" -l stderr -d 'Print what the turn wrote to stderr instead'
complete -c dormouse -n "__fish_dormouse_using_subcommand run; and __fish_seen_subcommand_from show" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand run; and __fish_seen_subcommand_from show" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand run; and __fish_seen_subcommand_from show" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand run; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand run; and __fish_seen_subcommand_from help" -f -a "list" -d 'List runs, newest first'
complete -c dormouse -n "__fish_dormouse_using_subcommand run; and __fish_seen_subcommand_from help" -f -a "show" -d 'Show one run'
complete -c dormouse -n "__fish_dormouse_using_subcommand run; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dormouse -n "__fish_dormouse_using_subcommand briefs" -l limit -d 'At most this many; 0 for all' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand briefs" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand briefs" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand briefs" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand briefs" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand briefs" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand briefs" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand briefs" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand events" -l kind -d 'Only events of this kind (may be repeated)' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand events" -l since -d 'Only events since this time, or from this long ago on' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand events" -l limit -d 'At most this many, the newest; 0 for all' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand events" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand events" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand events" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand events" -s f -l follow -d 'Go on printing events as they happen'
complete -c dormouse -n "__fish_dormouse_using_subcommand events" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand events" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand events" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand events" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand metrics" -s o -l output -d 'Write to this file, whole or not at all, instead of to stdout' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand metrics" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand metrics" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand metrics" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand metrics" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand metrics" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand metrics" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand metrics" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand recover" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand recover" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand recover" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand recover" -l force -d 'Count a run of another host as interrupted although its lease has not ended'
complete -c dormouse -n "__fish_dormouse_using_subcommand recover" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand recover" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand recover" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand recover" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand fail" -l reason -d 'Why, for the ledger and the next attempt' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand fail" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand fail" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand fail" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand fail" -l now -d 'Don\'t wait for a critical section of the turn'
complete -c dormouse -n "__fish_dormouse_using_subcommand fail" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand fail" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand fail" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand fail" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand preempt" -l reason -d 'Why: the turn and its hooks are told' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand preempt" -l grace -d 'How long the turn may take to yield [default: preemption.grace, 30s]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand preempt" -l for -d 'Resume the turn by itself after this long [default: only `dormouse resume` does]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand preempt" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand preempt" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand preempt" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand preempt" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand preempt" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand preempt" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand preempt" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand resume" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand resume" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand resume" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand resume" -l all -d 'Every agent'
complete -c dormouse -n "__fish_dormouse_using_subcommand resume" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand resume" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand resume" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand resume" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand safe-point" -s a -l agent -d 'The agent [default: $DORMOUSE_AGENT; not needed where an id is given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand safe-point" -l wait -d 'Wait for a message or a request to yield, at most this long' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand safe-point" -l signal -d 'The signal that the command gets when it is to end' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand safe-point" -l grace -d 'How long the command may take to end after that signal, before it gets SIGKILL' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand safe-point" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand safe-point" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand safe-point" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand safe-point" -l peek -d 'Print the operator\'s messages, and leave them for the next safe point'
complete -c dormouse -n "__fish_dormouse_using_subcommand safe-point" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand safe-point" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand safe-point" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand safe-point" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand checkpoint" -s a -l agent -d 'The agent [default: $DORMOUSE_AGENT; not needed where an id is given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand checkpoint" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand checkpoint" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand checkpoint" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand checkpoint" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand checkpoint" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand checkpoint" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand checkpoint" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand yield" -s a -l agent -d 'The agent [default: $DORMOUSE_AGENT; not needed where an id is given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand yield" -l checkpoint -d 'What the turn needs to go on: a file, or `-` for stdin [default: the checkpoint it was given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand yield" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand yield" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand yield" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand yield" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand yield" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand yield" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand yield" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand non-preemptible; and not __fish_seen_subcommand_from begin end help" -s a -l agent -d 'The agent [default: $DORMOUSE_AGENT; not needed where an id is given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand non-preemptible; and not __fish_seen_subcommand_from begin end help" -l deadline -d 'How long the section protects the turn' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand non-preemptible; and not __fish_seen_subcommand_from begin end help" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand non-preemptible; and not __fish_seen_subcommand_from begin end help" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand non-preemptible; and not __fish_seen_subcommand_from begin end help" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand non-preemptible; and not __fish_seen_subcommand_from begin end help" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand non-preemptible; and not __fish_seen_subcommand_from begin end help" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand non-preemptible; and not __fish_seen_subcommand_from begin end help" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand non-preemptible; and not __fish_seen_subcommand_from begin end help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand non-preemptible; and not __fish_seen_subcommand_from begin end help" -a "begin" -d 'Begin a section that `end` ends'
complete -c dormouse -n "__fish_dormouse_using_subcommand non-preemptible; and not __fish_seen_subcommand_from begin end help" -a "end" -d 'End the innermost section'
complete -c dormouse -n "__fish_dormouse_using_subcommand non-preemptible; and not __fish_seen_subcommand_from begin end help" -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dormouse -n "__fish_dormouse_using_subcommand non-preemptible; and __fish_seen_subcommand_from begin" -s a -l agent -d 'The agent [default: $DORMOUSE_AGENT; not needed where an id is given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand non-preemptible; and __fish_seen_subcommand_from begin" -l deadline -d 'How long the section protects the turn' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand non-preemptible; and __fish_seen_subcommand_from begin" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand non-preemptible; and __fish_seen_subcommand_from begin" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand non-preemptible; and __fish_seen_subcommand_from begin" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand non-preemptible; and __fish_seen_subcommand_from begin" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand non-preemptible; and __fish_seen_subcommand_from begin" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand non-preemptible; and __fish_seen_subcommand_from begin" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand non-preemptible; and __fish_seen_subcommand_from begin" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand non-preemptible; and __fish_seen_subcommand_from end" -s a -l agent -d 'The agent [default: $DORMOUSE_AGENT; not needed where an id is given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand non-preemptible; and __fish_seen_subcommand_from end" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand non-preemptible; and __fish_seen_subcommand_from end" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand non-preemptible; and __fish_seen_subcommand_from end" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand non-preemptible; and __fish_seen_subcommand_from end" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand non-preemptible; and __fish_seen_subcommand_from end" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand non-preemptible; and __fish_seen_subcommand_from end" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand non-preemptible; and __fish_seen_subcommand_from end" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand non-preemptible; and __fish_seen_subcommand_from help" -f -a "begin" -d 'Begin a section that `end` ends'
complete -c dormouse -n "__fish_dormouse_using_subcommand non-preemptible; and __fish_seen_subcommand_from help" -f -a "end" -d 'End the innermost section'
complete -c dormouse -n "__fish_dormouse_using_subcommand non-preemptible; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dormouse -n "__fish_dormouse_using_subcommand doctor" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand doctor" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand doctor" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand doctor" -l repair -d 'Repair what can be repaired in only one way'
complete -c dormouse -n "__fish_dormouse_using_subcommand doctor" -l quick -d 'Only what can be seen at a glance: settings, policies, `state.json`, journals'
complete -c dormouse -n "__fish_dormouse_using_subcommand doctor" -l merge-driver -d 'Configure git, in this clone, to merge the files of this state directory by `merge-driver`'
complete -c dormouse -n "__fish_dormouse_using_subcommand doctor" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand doctor" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand doctor" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand doctor" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand gc" -l keep -d 'Keep the directories of runs and tasks that ended less than this ago, whatever `[retention]` says' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand gc" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand gc" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand gc" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand gc" -l dry-run -d 'Say what would be done, with sizes, and do nothing'
complete -c dormouse -n "__fish_dormouse_using_subcommand gc" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand gc" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand gc" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand gc" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand export" -l move -d 'Mark them as moved to this place: a host, a URL, whatever tells people where they are now' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand export" -s o -l output -d 'Write to this file instead of stdout; it appears when it is whole' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand export" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand export" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand export" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand export" -l all -d 'All agents'
complete -c dormouse -n "__fish_dormouse_using_subcommand export" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand export" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand export" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand export" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand import" -l as -d 'The name that the one agent of the stream gets' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand import" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand import" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand import" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand import" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand import" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand import" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand import" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand sync" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand sync" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand sync" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand sync" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand sync" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand sync" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand sync" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand merge-driver" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand merge-driver" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand merge-driver" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand merge-driver" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand merge-driver" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand merge-driver" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand merge-driver" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand service" -l jobs -d 'How many agents are ticked at once' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand service" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand service" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand service" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand service" -l user -d 'For the services of a user: of this one, without rights on the machine'
complete -c dormouse -n "__fish_dormouse_using_subcommand service" -l follow -d 'With systemd: a service that stays (`tick --follow`) instead of a timer'
complete -c dormouse -n "__fish_dormouse_using_subcommand service" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand service" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand service" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand service" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand schema" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand schema" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand schema" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand schema" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand schema" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand schema" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand schema" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand check-outcome" -s a -l agent -d 'The agent [default: $DORMOUSE_AGENT; not needed where an id is given]' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand check-outcome" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand check-outcome" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand check-outcome" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand check-outcome" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand check-outcome" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand check-outcome" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand check-outcome" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand completions" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand completions" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand completions" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand completions" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand completions" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand completions" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand completions" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand man" -s C -l dir -d 'The state directory, or the directory that holds it [default: $DORMOUSE_DIR, else the nearest .dormouse upwards]' -r -F
complete -c dormouse -n "__fish_dormouse_using_subcommand man" -l color -d 'When to use colour' -r -f -a "auto\t'On a terminal, unless NO_COLOR is set'
always\t''
never\t''"
complete -c dormouse -n "__fish_dormouse_using_subcommand man" -l lock-timeout -d 'How long to wait for a lock before giving up with exit status 5' -r
complete -c dormouse -n "__fish_dormouse_using_subcommand man" -l json -d 'Print results and errors as JSON Lines on stdout'
complete -c dormouse -n "__fish_dormouse_using_subcommand man" -s q -l quiet -d 'Print nothing but results'
complete -c dormouse -n "__fish_dormouse_using_subcommand man" -s v -l verbose -d 'Print more messages on stderr'
complete -c dormouse -n "__fish_dormouse_using_subcommand man" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "init" -d 'Make a state directory'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "create" -d 'Make a new agent'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "start" -d 'Start agents, so that ticks run them'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "stop" -d 'Stop agents and end what they run'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "pause" -d 'Deprecated: use stop'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "enqueue" -d 'Send a message to an agent'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "ask" -d 'Send a message to an agent and wait for its answer'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "wake" -d 'Tell an agent that something may have changed'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "tick" -d 'Run one step of an agent: do what comes next'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "get" -d 'Show a summary of an agent'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "list" -d 'List agents, a line each'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "explain" -d 'Say what the next step would do, and why'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "state" -d 'Show the execution state of an agent: since when, why, and which states can follow'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "await" -d 'Wait until agents have a posture or status, or a message is settled'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "next-wake" -d 'Say when the next step is due'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "queue" -d 'Look at messages, and deal with dead letters'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "work" -d 'Work items: what an agent has set out to do'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "wait" -d 'Record why work can\'t go on, and what would end that'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "timer" -d 'Timers: messages that are sent at a set time'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "task" -d 'Background tasks, which outlive the turn that starts them'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "trigger" -d 'Capabilities by which outside systems reach an agent'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "ingress" -d 'Answer one HTTP request, and end'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "supervise" -d 'Look after a task; `task start` runs this'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "run" -d 'Look at turns'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "briefs" -d 'Show the briefs of turns, newest first'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "events" -d 'Show what happened, oldest first'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "metrics" -d 'Print numbers about all agents for Prometheus'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "recover" -d 'Let a failed agent go on at once, or retry a message that is put off'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "fail" -d 'Fail what an agent is doing: a turn, a message that waits to go on, a stop or a recovery'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "preempt" -d 'Ask a running turn to yield'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "resume" -d 'Let suspended runs go on'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "safe-point" -d 'Ask whether to go on, from inside a turn'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "checkpoint" -d 'Save what this turn needs to go on, from inside a turn'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "yield" -d 'Suspend this turn, from inside it'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "non-preemptible" -d 'Run a command that must not be preempted, from inside a turn'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "doctor" -d 'Check every record'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "gc" -d 'Drop what is kept no longer, and pack old months'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "export" -d 'Write agents as a stream, to be imported elsewhere'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "import" -d 'Read agents from a stream that export wrote'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "sync" -d 'Exchange what clones of this state directory have done, through git'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "merge-driver" -d 'Merge two versions of a file of the state directory, for git'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "service" -d 'Print what makes a machine tick this state directory'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "schema" -d 'Print the JSON Schema of a record, or of what a turn gets and gives'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "check-outcome" -d 'Check the outcome of a turn before the turn ends'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "completions" -d 'Print the completions of a shell'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "man" -d 'Print a manual page'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and not __fish_seen_subcommand_from init create start stop pause enqueue ask wake tick get list explain state await next-wake queue work wait timer task trigger ingress supervise run briefs events metrics recover fail preempt resume safe-point checkpoint yield non-preemptible doctor gc export import sync merge-driver service schema check-outcome completions man help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and __fish_seen_subcommand_from queue" -f -a "list" -d 'List queued messages in processing order'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and __fish_seen_subcommand_from queue" -f -a "show" -d 'Show one message, queued or ended'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and __fish_seen_subcommand_from queue" -f -a "dead" -d 'List dead letters: messages that failed for the last time'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and __fish_seen_subcommand_from queue" -f -a "rejected" -d 'List files that could not be admitted, and deal with them'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and __fish_seen_subcommand_from queue" -f -a "requeue" -d 'Put a dead, aborted or dropped message back into the queue'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and __fish_seen_subcommand_from queue" -f -a "drop" -d 'Drop a message that is queued, put off or suspended, or a dead letter'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and __fish_seen_subcommand_from work" -f -a "add" -d 'Add a work item'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and __fish_seen_subcommand_from work" -f -a "list" -d 'List work items, oldest first'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and __fish_seen_subcommand_from work" -f -a "show" -d 'Show one work item with its plan'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and __fish_seen_subcommand_from work" -f -a "update" -d 'Change a work item; it becomes eligible for another tick'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and __fish_seen_subcommand_from work" -f -a "pick" -d 'Make an item the current item'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and __fish_seen_subcommand_from work" -f -a "block" -d 'Record what blocks an item'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and __fish_seen_subcommand_from work" -f -a "unblock" -d 'Record that nothing blocks an item any more'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and __fish_seen_subcommand_from work" -f -a "complete" -d 'Complete an item: its waits are cancelled, its blocker cleared, the focus taken from it'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and __fish_seen_subcommand_from work" -f -a "plan" -d 'Print the plan of an item, or replace it'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and __fish_seen_subcommand_from wait" -f -a "list" -d 'List active waits'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and __fish_seen_subcommand_from wait" -f -a "cancel" -d 'Cancel a wait'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and __fish_seen_subcommand_from timer" -f -a "add" -d 'Add a timer'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and __fish_seen_subcommand_from timer" -f -a "list" -d 'List active timers'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and __fish_seen_subcommand_from timer" -f -a "cancel" -d 'Cancel a timer'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and __fish_seen_subcommand_from task" -f -a "start" -d 'Start a command in the background, or delegate work to a child; the result comes as a message'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and __fish_seen_subcommand_from task" -f -a "list" -d 'List open tasks, oldest first'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and __fish_seen_subcommand_from task" -f -a "status" -d 'Show one task, open or ended'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and __fish_seen_subcommand_from task" -f -a "output" -d 'Print the output of a task'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and __fish_seen_subcommand_from task" -f -a "input" -d 'Write a line to the stdin of a task that was started with --interactive'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and __fish_seen_subcommand_from task" -f -a "stop" -d 'End a task: SIGTERM, and SIGKILL when the grace is over'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and __fish_seen_subcommand_from trigger" -f -a "create" -d 'Make a trigger'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and __fish_seen_subcommand_from trigger" -f -a "list" -d 'List the active triggers of an agent'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and __fish_seen_subcommand_from trigger" -f -a "show" -d 'Show one trigger, active or revoked'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and __fish_seen_subcommand_from trigger" -f -a "deliver" -d 'Deliver through a trigger, as an outside system would'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and __fish_seen_subcommand_from trigger" -f -a "rotate" -d 'Replace the secret of a trigger; the old one is worth nothing from then on'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and __fish_seen_subcommand_from trigger" -f -a "revoke" -d 'Revoke a trigger for good; what it has delivered stays'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and __fish_seen_subcommand_from run" -f -a "list" -d 'List runs, newest first'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and __fish_seen_subcommand_from run" -f -a "show" -d 'Show one run'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and __fish_seen_subcommand_from non-preemptible" -f -a "begin" -d 'Begin a section that `end` ends'
complete -c dormouse -n "__fish_dormouse_using_subcommand help; and __fish_seen_subcommand_from non-preemptible" -f -a "end" -d 'End the innermost section'
