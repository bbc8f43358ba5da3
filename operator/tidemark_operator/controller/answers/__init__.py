"""Answers to clients: peeks, subscribes and copies under way."""
