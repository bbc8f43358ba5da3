"""Installed dataflows. Read in this order: `installed_dataflow.py` (one dataflow as a plain object),
`dataflow_driver.py` (its rendering, steps and sinks), `step_goal.py` and `step_inputs.py` (how far a step goes, what it
reads), `refreshes` (when views are computed anew), `installed_dataflows.py` (all dataflows), `recomputation_pauses.py`
(when they begin anew after other programs' changes), `reconciliation.py` (what a new controller's commands reuse)."""
