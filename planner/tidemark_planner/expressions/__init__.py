"""Catalyst's expressions as typed trees of the protocol."""
