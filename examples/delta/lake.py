"""Writes the Delta tables of lake.yaml: two orders of each customer at first, then a MERGE each time it is called.

    python lake.py /var/lib/lake

It needs the package `deltalake`. The folder is one that replicas can read.
"""

from __future__ import annotations

import sys

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

NAMES = ["ann", "bob", "eve"]


def orders(first: int, count: int, amount: int) -> pa.Table:
    ids = list(range(first, first + count))
    columns = {"id": ids, "customer": [id % len(NAMES) for id in ids], "amount": [amount] * count}
    return pa.table(columns, pa.schema([(name, pa.int64()) for name in columns]))


def create(lake: str) -> None:
    customers = {"id": list(range(len(NAMES))), "name": NAMES, "notes": [[("since", "2026")]] * len(NAMES)}
    types = [("id", pa.int64()), ("name", pa.string()), ("notes", pa.map_(pa.string(), pa.string()))]
    write_deltalake(f"{lake}/customers", pa.table(customers, pa.schema(types)))
    write_deltalake(f"{lake}/orders", orders(0, 6, 10), configuration={"delta.enableChangeDataFeed": "true"})


def merge(lake: str) -> None:
    """The last order becomes dearer, and there are two more."""
    table = DeltaTable(f"{lake}/orders")
    count = table.count()
    changes = table.merge(orders(count - 1, 3, 25), "t.id = s.id", source_alias="s", target_alias="t")
    changes.when_matched_update_all().when_not_matched_insert_all().execute()


if __name__ == "__main__":
    lake = sys.argv[1]
    if DeltaTable.is_deltatable(f"{lake}/orders"):
        merge(lake)
    else:
        create(lake)
