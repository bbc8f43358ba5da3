"""The command line: `tidemark`, and as a plugin `kubectl tidemark`.

main        the group of commands; turns errors into a message and an exit status
options     the flags that commands share
completion  completion of command lines, for shells and for kubectl
commands/   one module per command
gateway/    how a command finds the gateway, authenticates and calls it
output/     times, values, rows and colours
"""
