"""The replica's reports about itself: Prometheus metrics (`metrics.py`), costs of dataflows (`cost_status.py`),
rows of exports (`row_status.py`), and errors in exports (`error_status.py`)."""
