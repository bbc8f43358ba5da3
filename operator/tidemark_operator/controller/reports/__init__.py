"""What replicas report of themselves: hydration progress, operator costs, problems of their store and executors."""
