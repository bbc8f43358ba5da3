"""The dataflows that hydrate on a replica, and the quarantined ones."""
