"""What the replica reports about itself: Prometheus metrics (`metrics.py`), costs of dataflows (`cost_status.py`), and
errors in exports (`error_status.py`)."""
