"""The plan of a dataflow (LIR), its parts, and its canonical bytes."""
