"""Reports of replicas about themselves: hydration progress, operator costs, problems of their store and executors."""
