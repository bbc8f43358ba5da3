"""What runs in a task of Spark or in a step worker: a stage, from its inputs to its report."""
