"""Sinks: where the output of a dataflow goes when it leaves the replica."""
