"""The command line: `tidemark`, and as a plugin `kubectl tidemark`.

main        the group of commands; turns errors into a message and an exit status
options     the flags that commands share
completion  completion of command lines, for shells and for kubectl
commands/   one module per command
output/     times, values, rows in the forms of `-o`, and colours

The way to the gateway is the client's (tidemark.gateway).
"""
