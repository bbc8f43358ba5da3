"""The command loop: one thread that owns the state of the replica and carries out each command."""
