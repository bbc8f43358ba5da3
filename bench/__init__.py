"""The benchmarks: each module prints one JSON object as its last line (`python -m bench.<name> --json`)."""
