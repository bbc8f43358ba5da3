"""The speed at which views are written outside of Tidemark: `python -m bench.sinks`."""
