"""The way of a command to the operator's gateway: it is found, authenticated to, and called."""
