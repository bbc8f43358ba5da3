"""Addresses that sources connect to, in one form (`address.py`), and the operator's list of those that are allowed
(`allowed_hosts.py`)."""
