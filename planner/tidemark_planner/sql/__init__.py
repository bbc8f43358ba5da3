"""The text of a query before analysis: its parse tree, its names, and the edits that make Spark's tree complete.

Reading order: `syntax` (the parse tree), `names` (relations, and the rewritten text), then the edits: `like_patterns`,
`try_functions`, `table_changes`.
"""
