"""Addresses in one form (`address.py`), the operator's list of those that are allowed (`allowed_hosts.py`), and those
that sources and sinks connect to (`connections.py`)."""
