"""What shared arrangements save; `python -m bench.sharing`."""
