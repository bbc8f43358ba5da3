"""Sinks: the output of a dataflow. Read `interface.py` and `build.py` first, then `sink_progress.py` (what a table
still needs), `table/` (materialized views and continual tasks), `destinations/` (where else a view goes: `published/`,
`postgres/`), and `subscribe/` and `copy/` (sinks of clients)."""
