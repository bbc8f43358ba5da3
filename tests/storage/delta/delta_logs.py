"""Delta tables by hand: entries of the log with what delta-rs does not write (deletion vectors, column mapping)."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Action = dict[str, Any]
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
VECTORS: Action = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors"],
    }
}


def entry(table: Path | str, version: int, *actions: Action) -> None:
    """Writes the log's entry of the version."""
    log = Path(table) / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    (log / f"{version:020}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))


def actions_of(table: Path | str, version: int) -> list[Action]:
    text = (Path(table) / "_delta_log" / f"{version:020}.json").read_text()
    return [json.loads(line) for line in text.splitlines()]


def metadata(id: str, fields: Iterable[Action], partitions: Iterable[str] = (), **configuration: str) -> Action:
    """`configuration`: with underscores for the dots after `delta.`."""
    schema = json.dumps({"type": "struct", "fields": list(fields)})
    return {
        "metaData": {
            "id": id,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema,
            "partitionColumns": list(partitions),
            "configuration": {f"delta.{name.replace('_', '.')}": value for name, value in configuration.items()},
            "createdTime": 1,
        }
    }


def field(name: str, type: Any, **metadata: Any) -> Action:
    return {"name": name, "type": type, "nullable": True, "metadata": metadata}


def mapped(name: str, type: Any, physical: str, id: int) -> Action:
    """A field with column mapping."""
    names = {"delta.columnMapping.id": id, "delta.columnMapping.physicalName": physical}
    return {"name": name, "type": type, "nullable": True, "metadata": names}


def protocol(reader: int, writer: int, *features: str) -> Action:
    both = {"readerFeatures": list(features), "writerFeatures": list(features)} if features else {}
    return {"protocol": {"minReaderVersion": reader, "minWriterVersion": writer, **both}}


def data_file(table: Path | str, name: str, rows: pa.Table, **options: Any) -> Action:
    """Writes a data file; the action that adds it, without partition."""
    path = Path(table) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path, **options)
    size = os.path.getsize(path)
    stats = json.dumps({"numRecords": rows.num_rows})
    added = {"path": name, "partitionValues": {}, "size": size, "modificationTime": 1, "dataChange": True}
    return {"add": added | {"stats": stats}}


def removal(add: Action, *, extended: bool = True) -> Action:
    """The action that removes what `add` adds."""
    added = add["add"]
    removed = {"path": added["path"], "dataChange": True, "deletionTimestamp": 1}
    if extended:
        removed |= {"extendedFileMetadata": True, "partitionValues": added["partitionValues"], "size": added["size"]}
    if "deletionVector" in added:
        removed["deletionVector"] = added["deletionVector"]
    return {"remove": removed}


def with_vector(add: Action, rows: Iterable[int]) -> Action:
    """The file again, without these rows."""
    return {"add": add["add"] | {"deletionVector": inline_vector(rows)}}


def inline_vector(rows: Iterable[int]) -> Action:
    """A deletion vector inside the log: a portable 64-bit roaring bitmap of row numbers below 65,536."""
    deleted = sorted(rows)
    container = struct.pack("<IIHHI", 12346, 1, 0, len(deleted) - 1, 16) + struct.pack(f"<{len(deleted)}H", *deleted)
    bitmap = struct.pack("<IQI", 1681511377, 1, 0) + container
    text = _z85(bitmap + b"\0" * (-len(bitmap) % 4))
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(bitmap), "cardinality": len(deleted)}


def _z85(data: bytes) -> str:
    text = ""
    for (number,) in struct.iter_unpack(">I", data):
        digits = [number // 85**power % 85 for power in (4, 3, 2, 1, 0)]
        text += "".join(_ALPHABET[digit] for digit in digits)
    return text
