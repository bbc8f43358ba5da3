"""The way from PostgreSQL's values to columns: `column_types` (the type here), `tuples` (changes of the stream),
`text_values`, `updates` (rows, and rows in error)."""
