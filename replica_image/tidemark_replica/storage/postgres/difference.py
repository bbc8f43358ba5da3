"""The difference between new contents of a table and what its shard has, consolidated in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import pyarrow as pa

from tidemark_persist import DIFF, ERROR, TIME, Shard, StagedFile, consolidate, read_part, staged_part
from tidemark_persist.files.spill import divide
from tidemark_protocol.ids import Time
from tidemark_protocol.types import Column
from tidemark_replica.storage.withdrawal import Withdrawal
from tidemark_replica.values.arrow_types import arrow_schema

SHARE_BYTES = 32 << 20
"""Updates that may cancel are consolidated in shares of about so many bytes of data files."""


def difference(
    shard: Shard, columns: Sequence[Column], contents: Sequence[StagedFile], time: Time
) -> Iterator[pa.RecordBatch]:
    """Updates at the time that turn the shard's contents into those of the staged files."""
    schema = arrow_schema(columns)
    fields = (pa.field(ERROR, pa.string()), pa.field(DIFF, pa.int64()), pa.field(TIME, pa.int64()))
    wanted = pa.schema([*schema, *fields])
    gone = Withdrawal(shard, columns, errors=True)
    new = (read_part(staged_part(shard.location, file), columns=wanted.names[:-1]) for file in contents)
    updates = (pa.Table.from_batches([batch]) for batch in chain(gone.updates(), chain.from_iterable(new)))
    size = gone.size + sum(file.size for file in contents)
    timed = (t.append_column(TIME, pa.repeat(pa.scalar(int(time), pa.int64()), t.num_rows)) for t in updates)
    for share in divide((table.cast(wanted) for table in timed), wanted, 1 + size // SHARE_BYTES):
        tables = list(share)
        if tables:
            yield from consolidate(pa.concat_tables(tables)).to_batches()
