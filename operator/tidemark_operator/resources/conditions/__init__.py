"""The truth tables of conditions, and the form of a frontier in status.

Read `condition` first (Verdict, merging), then `dataflow`, the largest table; `instance`, `replica` and `data_source`
are the tables of the other kinds. `diagnostics` turns the planner's answer into the state of a plan, and `frontier`
writes frontiers. docs/reference/conditions.md lists every reason.
"""
