"""The command loop: one thread that owns the state of the replica and carries out each command. Read `loop.py` first,
then `compute_state.py`; the other modules are parts of that state."""
