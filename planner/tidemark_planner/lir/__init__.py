"""HIR to LIR: the physical choices."""
