"""Writes a Delta table in the object store that the environment names, as two writers, and reads it."""

import os
import sys

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from tidemark_persist.storage import Storage


def main() -> None:
    location = os.environ["LOCATION"]
    for start in (0, 10):
        write_deltalake(f"{location}/table", pa.table({"id": list(range(start, start + 10))}), mode="append")
    print(DeltaTable(f"{location}/table").version(), DeltaTable(f"{location}/table").to_pyarrow_table().num_rows)
    Storage(f"{location}/folder", dict(os.environ)).write("name", b"content")


if __name__ == "__main__":
    sys.exit(main())
