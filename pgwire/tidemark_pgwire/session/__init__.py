"""One connection: from its first bytes to its last statement.

module        what it does
startup       TLS, the token, the namespace
settings      SET, RESET, and the settings that Tidemark has of its own
transaction   BEGIN to COMMIT: the time that all statements read at
portal        a statement that runs: its columns, and its rows as the client takes them
answers       where rows come from: the gateway, the catalogue, a subscribe
statements    runs one statement
extended      Parse, Bind, Describe, Execute
session       the loop over messages
"""
