"""How fast views are written outside of Tidemark: `python -m bench.sinks`."""
