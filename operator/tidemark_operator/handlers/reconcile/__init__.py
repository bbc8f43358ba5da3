"""Reconciling each kind of resource."""
