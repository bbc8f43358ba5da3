"""Peeks: from the command to the finished answer."""
