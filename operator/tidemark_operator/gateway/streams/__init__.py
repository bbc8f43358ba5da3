"""Subscribes and copies."""
