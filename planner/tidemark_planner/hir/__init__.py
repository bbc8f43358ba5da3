"""HIR, the planner's own relational algebra, and the unique keys of its nodes."""
