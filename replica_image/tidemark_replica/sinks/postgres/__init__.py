"""A view's current rows in a table of a PostgreSQL database. Read `delivery.py` first (what a transaction does), then
`target_table.py` (the table, its checks), `progress.py` (the row that fences), `statements.py` (SQL), `column_types.py`
and `copied_rows.py` (types, and rows as COPY takes them)."""
