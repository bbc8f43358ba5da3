"""Sinks: the output of a dataflow. Read `interface.py` and `build.py` first, then `sink_progress.py` (what a table
still needs), `table/` (materialized views and continual tasks), and `subscribe/` and `copy/` (sinks of clients)."""
