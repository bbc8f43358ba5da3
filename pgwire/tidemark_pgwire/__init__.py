"""The PostgreSQL wire protocol: psql, drivers and dashboards read views as if Tidemark were a PostgreSQL server.

    client ──TLS──► messages ──► session ──► catalogue: what \\d, drivers and dashboards ask of a server
                                         ──► gateway: everything else, over gRPC with the user's token

folder or module   what it has
main, server       options; connections, certificates, cancel requests
watchdog           ends a process whose event loop stands
session            one connection, from its first bytes to its last statement
statements         the text of statements: tokens, commands, parameters as literals
writes             rows of INSERT and COPY FROM, until their transaction ends
catalogue          pg_catalog, information_schema, SHOW
gateway            calls to the operator's gateway
values             columns of Arrow as values of PostgreSQL, in both formats
messages           the frames of the protocol
errors             errors with a SQLSTATE
"""
