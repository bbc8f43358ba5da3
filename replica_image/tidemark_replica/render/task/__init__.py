"""A stage in a task of Spark or in a step worker: its inputs, its operators, its report."""
