"""Installed dataflows: created, stepped by their drivers, reported, dropped."""
