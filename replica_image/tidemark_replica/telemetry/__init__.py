"""What the replica counts and reports of itself: metrics, costs, errors."""
