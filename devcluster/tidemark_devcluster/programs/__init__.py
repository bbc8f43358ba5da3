"""Compiling the control plane's programs, once, into the cache."""
