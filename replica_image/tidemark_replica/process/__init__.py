"""One replica process: its parts and threads (`replica.py`), its scratch folder (`scratch.py`, `scratch_quota.py`), and
the watchdog that ends a process whose command loop is stuck."""
