"""The destinations of a materialized view outside of Tidemark, as manifests write them. `view_sinks.py` has all."""
