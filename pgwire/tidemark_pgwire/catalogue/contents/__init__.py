"""The contents of the catalogue: the user's relations with oids (`entries`), and rows of the system relations
(`system_rows` lists them)."""
