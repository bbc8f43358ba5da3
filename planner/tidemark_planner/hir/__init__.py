"""HIR, the planner's relational algebra without physical choices: `nodes`, and their unique keys and monotonicity
(`keys`).
"""
