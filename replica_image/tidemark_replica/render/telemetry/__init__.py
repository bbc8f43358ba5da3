"""The operators of a dataflow as people read of them: names, costs, progress."""
