"""Watches of the API server, as events for the reconcile loop."""
