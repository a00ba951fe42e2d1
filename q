/dev/fd/3: line 120: ./option_states: No such file or directory
