"""The subscribe sink."""
