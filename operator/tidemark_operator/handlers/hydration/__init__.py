"""The revisions that hydrate on each replica, recorded before they are scheduled; and blame for deaths of replicas."""
