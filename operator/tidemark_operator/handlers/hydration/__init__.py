"""Which revisions hydrate on which replica, recorded before they are scheduled; and blame for deaths of replicas."""
