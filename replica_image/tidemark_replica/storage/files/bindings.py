"""The rows of a files source's remap shard.

    table            file         size  modified_ns
    t                1.csv        12    ...           the file is bound in this version
    t/release/17     1.csv        12    ...           request 17 let this version go: it is not bound again
    t/reread/18      1.csv        15    ...           request 18 bound this version in place of another one
    t/staged         {"path" ...  0     0             a data file with the updates of this tick's requests
    t.2/begun                     0     0             t.2 began, with all files that t had

The last request about a file leaves one row, so a request that comes again is known to be done. A row `t/staged` is
retracted at the next tick: the updates of a request are staged before its binding is minted, since what they are made
of may be gone afterwards. So are the rows with which a successor begins. Bindings of a bucket have one more column, the
ETag.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from tidemark_persist import DIFF, StagedFile
from tidemark_replica.storage.files.listing import FileVersion

REMAP_SCHEMA = pa.schema(
    [
        pa.field("table", pa.string()),
        pa.field("file", pa.string()),
        pa.field("size", pa.int64()),
        pa.field("modified_ns", pa.int64()),
    ]
)
BUCKET_REMAP_SCHEMA = REMAP_SCHEMA.append(pa.field("etag", pa.string()))
BOUND, STAGED, BEGUN = "", "staged", "begun"


@dataclass(frozen=True)
class BindingRow:
    """One row of a binding. `kind`: BOUND, an action of a request, STAGED, or BEGUN. `request`: its id, of actions
    alone."""

    table: str
    kind: str
    file: FileVersion
    diff: int = 1
    request: int = 0

    def retracted(self) -> BindingRow:
        return BindingRow(self.table, self.kind, self.file, -1, self.request)

    def staged(self) -> StagedFile:
        """The staged file of a STAGED row."""
        return StagedFile.from_json(self.file.name)

    @property
    def marked(self) -> str:
        """The column `table`."""
        return "/".join(filter(None, (self.table, self.kind, str(self.request or ""))))


def staged_row(table: str, staged: StagedFile) -> BindingRow:
    """The row for a data file of the table."""
    return BindingRow(table, STAGED, FileVersion(staged.to_json(), 0, 0))


def parse(binding: pa.Table) -> Iterator[BindingRow]:
    """The rows of a binding."""
    if not binding.num_rows:
        return
    columns = [binding.column(name).to_pylist() for name in (*REMAP_SCHEMA.names, DIFF)]
    etags = binding.column("etag").to_pylist() if "etag" in binding.schema.names else [""] * binding.num_rows
    for marked, name, size, modified_ns, diff, etag in zip(*columns, etags, strict=True):
        table, _, kind = marked.partition("/")
        kind, _, request = kind.partition("/")
        yield BindingRow(table, kind, FileVersion(name, size, modified_ns, etag or ""), diff, int(request or 0))


def binding_of(rows: Iterable[BindingRow], schema: pa.Schema) -> pa.Table:
    """The rows as a table; `parse` reads it."""
    rows = list(rows)
    columns = {
        "table": [row.marked for row in rows],
        "file": [row.file.name for row in rows],
        "size": [row.file.size for row in rows],
        "modified_ns": [row.file.modified_ns for row in rows],
        "etag": [row.file.etag for row in rows],
        DIFF: [row.diff for row in rows],
    }
    wanted = schema.append(pa.field(DIFF, pa.int64()))
    return pa.Table.from_arrays([pa.array(columns[f.name], f.type) for f in wanted], schema=wanted)
