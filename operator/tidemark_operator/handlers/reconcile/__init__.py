"""The reconcile loop, and a reconciler for each kind of object."""
