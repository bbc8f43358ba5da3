"""The copy sink: the contents of a collection at one time, as files on a disk (`files.py`) or in an object store
(`objects.py`)."""
