"""Statuses, built from what the operator knows."""
