"""Writes a Delta table and an object in the store that the environment names, and reads them."""

import os

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from tidemark_persist.storage.storage import Storage


def main() -> None:
    location = os.environ["LOCATION"]
    for start in (0, 10):
        write_deltalake(f"{location}/table", pa.table({"id": list(range(start, start + 10))}), mode="append")
    table = DeltaTable(f"{location}/table")
    storage = Storage(f"{location}/folder", {name: value for name, value in os.environ.items() if "AWS_" in name})
    storage.write("name", b"content")
    print(table.version(), table.to_pyarrow_table().num_rows, (storage.read("name") or b"").decode())


if __name__ == "__main__":
    main()
