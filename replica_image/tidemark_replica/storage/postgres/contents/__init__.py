"""The contents of tables at one exported snapshot, as staged files.

copied_tables (which tables, checked, as a difference) ──► snapshot (ranges) ──► copied_rows (COPY, as columns)
"""
