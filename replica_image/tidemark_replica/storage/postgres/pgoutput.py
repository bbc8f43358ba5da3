"""Messages of logical replication, as the plugin `pgoutput` (protocol version 1) writes them.

    XLogData 'w'  wal start, wal end, clock  │ B  begin     I  insert  │ new
                                             │ C  commit    U  update  │ (old or key) new
    Keepalive 'k' wal end, clock, reply?     │ R  relation  D  delete  │ old or key
                                             │ T  truncate  Y type, O origin, M message: of no meaning here

Numbers are big-endian. A message of a change stays as bytes here; `tuples` decodes many at a time, by column.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

BODY = 25
"""Where the message of an XLogData begins."""
BEGIN, COMMIT, RELATION, TRUNCATE = b"BCRT"
CHANGES = frozenset(b"IUD")
KEEPALIVE, DATA = b"kw"
_EPOCH_US = 946_684_800_000_000
"""Microseconds from 1970 to 2000, where PostgreSQL's clock begins."""


@dataclass(frozen=True)
class RelationColumn:
    name: str
    type_oid: int
    type_modifier: int
    is_key: bool


@dataclass(frozen=True)
class ReplicatedRelation:
    """A table as the following changes have it. `identity`: `f` full, `d` primary key, `i` an index, `n` nothing."""

    oid: int
    schema: str
    table: str
    identity: str
    columns: tuple[RelationColumn, ...]

    @property
    def key(self) -> tuple[str, ...] | None:
        """The columns by which changes name rows: none, by whole rows; None: changes do not name rows."""
        if self.identity == "f":
            return ()
        return tuple(column.name for column in self.columns if column.is_key) or None


def relation_oid(data: bytes) -> int:
    """The table of a change."""
    return int.from_bytes(data[BODY + 1 : BODY + 5], "big")


def commit_lsn(data: bytes) -> int:
    """The position at which the commit record of a Begin's transaction begins."""
    return int.from_bytes(data[BODY + 1 : BODY + 9], "big")


def transaction_id(data: bytes) -> int:
    """The transaction of a Begin (`xid`, without its epoch)."""
    return int.from_bytes(data[BODY + 17 : BODY + 21], "big")


def commit_end(data: bytes) -> int:
    """The position after the transaction of a Commit."""
    return int.from_bytes(data[BODY + 10 : BODY + 18], "big")


def truncated(data: bytes) -> tuple[int, ...]:
    """The oids of the tables of a Truncate."""
    (count,) = struct.unpack_from(">i", data, BODY + 1)
    return struct.unpack_from(f">{count}I", data, BODY + 6)


def parse_relation(data: bytes) -> ReplicatedRelation:
    oid, at = relation_oid(data), BODY + 5
    schema, at = _text(data, at)
    table, at = _text(data, at)
    identity = chr(data[at])
    (count,) = struct.unpack_from(">h", data, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        flags = data[at]
        name, at = _text(data, at + 1)
        type_oid, modifier = struct.unpack_from(">Ii", data, at)
        columns.append(RelationColumn(name, type_oid, modifier, bool(flags & 1)))
        at += 8
    return ReplicatedRelation(oid, schema or "pg_catalog", table, identity, tuple(columns))


def keepalive(data: bytes) -> tuple[int, bool]:
    """The position that the server has sent everything before, and whether it wants an answer."""
    return int.from_bytes(data[1:9], "big"), bool(data[17])


def feedback(lsn: int, now_ms: int, ask: bool) -> bytes:
    """The message that confirms all before the position, and may ask for an answer."""
    return struct.pack(">cQQQqB", b"r", lsn, lsn, lsn, now_ms * 1000 - _EPOCH_US, ask)


def lsn_text(lsn: int) -> str:
    """A position in the WAL as PostgreSQL prints it: `16/B374D848`."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> int:
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(0, at)
    return data[at:end].decode(), end + 1
