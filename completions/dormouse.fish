complete --keep-order --exclusive --command dormouse --arguments "(DORMOUSE_COMPLETE=fish dormouse -- (commandline --current-process --tokenize --cut-at-cursor) (commandline --current-token))"
