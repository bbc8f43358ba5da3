"""Put-if-absent: one of several writers stores a record, where there is no rename.

    attempt 1 ──put_if_absent({attempt: 1})──┐
    attempt 2 ──put_if_absent({attempt: 2})──┴──► {attempt: 1}      the record that stays, returned to all callers

The record is in the first entry of a Delta log without data, which delta-rs writes by a conditional PUT (delta_log.py).
A caller whose reply was lost reads the record; while it cannot be read, `IndeterminateCommit` is raised.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable

from tidemark_persist.errors import IndeterminateCommit, StorageError
from tidemark_persist.log.delta_log import NO_HOOKS
from tidemark_persist.storage.storage import FIRST_ENTRY, Storage

_RECORD = "tidemark.record"
_SCHEMA = pa.schema([pa.field("claimed", pa.bool_())])
UNKNOWNS_MAX = 4
PAUSE_SECONDS = 0.05


def put_if_absent(location: str, record: Mapping[str, Any], options: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The record that stays at the location: this one, or an earlier one. Raises StorageError where this one was
    certainly not stored, IndeterminateCommit where it may be stored, now or later."""
    storage, tried, silence = Storage.at(location, options), False, "no record is found there"
    for unknowns in range(UNKNOWNS_MAX):
        try:
            if (found := read_record(storage)) is not None:
                return found
            tried = True
            _put(storage, record)
            found = read_record(storage)
            if found is not None:
                return found
        except StorageError as error:
            if not tried:
                raise
            silence = str(error)
        time.sleep(PAUSE_SECONDS * 2**unknowns)
    raise IndeterminateCommit(f"{location}: it may be claimed or not ({silence})", commit_id=json.dumps(dict(record)))


def read_record(storage: Storage) -> dict[str, Any] | None:
    """The record; None if there is none. Raises StorageError."""
    entry = storage.read(FIRST_ENTRY)
    if entry is None:
        return None
    for line in entry.splitlines():
        info = json.loads(line).get("commitInfo", {})
        if _RECORD in info:
            record: dict[str, Any] = json.loads(info[_RECORD])
            return record
    raise StorageError(f"{storage.location} has a Delta table that is not a record; choose another location")


def _put(storage: Storage, record: Mapping[str, Any]) -> None:
    """Fails where a record exists, as it may for any other reason."""
    with storage.errors("claiming it", writing=True):
        DeltaTable.create(
            storage.location,
            _SCHEMA,
            mode="error",
            storage_options=storage.settings,
            raise_if_key_not_exists=False,
            commit_properties=CommitProperties(
                max_commit_retries=0, custom_metadata={_RECORD: json.dumps(dict(record))}
            ),
            post_commithook_properties=NO_HOOKS,
        )
