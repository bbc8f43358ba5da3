"""Holds: inputs stay readable for dataflows that are not installed.

revision_holds        what a stored revision reads, until it is installed
adopted_history_hold  tables that were adopted, until the Dataflows that are restored with them have begun
"""
