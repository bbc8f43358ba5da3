"""Statuses of all kinds, as pure functions of what the operator knows."""
