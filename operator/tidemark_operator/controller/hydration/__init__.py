"""Which dataflows hydrate on a replica, and which are quarantined."""
