"""Hydration slots: which Dataflow hydrates where, recorded before it is scheduled."""
