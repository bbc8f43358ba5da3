"""Revisions of a Dataflow: planned, stored, installed, taken over."""
