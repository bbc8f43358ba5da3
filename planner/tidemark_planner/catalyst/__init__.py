"""Spark's parser and analyser, and the JSON that they print: trees, types, errors.

Reading order: `analyser` (the session), `json_tree` (trees as nodes), `spark_types`, `spark_errors`, `lru`.
"""
