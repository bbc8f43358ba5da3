"""How a command finds the operator's gateway, authenticates and calls it."""
