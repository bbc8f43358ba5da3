"""The times when views are computed anew: `full.py` (at each refresh), `automatic.py` (where a step would cost more),
and `step_costs.py` (what steps and hydrations have cost)."""
