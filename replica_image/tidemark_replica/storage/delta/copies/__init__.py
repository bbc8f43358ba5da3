"""Copies of Delta tables that are made beside the ticks: first versions, and what a resnapshot changes."""
