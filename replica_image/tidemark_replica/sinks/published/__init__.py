"""A view's current rows as an ordinary Delta table. Read `publication.py` first, then `published_table.py` (the table
and its commits), `hash_prefix.py` (which file a row lies in) and `changed_files.py` (which files a change replaces)."""
