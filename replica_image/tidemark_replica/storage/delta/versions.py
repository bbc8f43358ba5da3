"""Opens a Delta table at a version: its definition, and its files with the rows that deletion vectors leave."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from urllib.parse import unquote

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError, TableNotFoundError

from tidemark_persist import Storage
from tidemark_protocol.forbidden_source_folders import forbidden_folder
from tidemark_replica.storage.delta.definition import DeltaDefinition, check_features, protocol_of
from tidemark_replica.storage.delta.stop import FEATURE_NOT_SUPPORTED, FILE_UNREADABLE, TABLE_MISSING, VERSION_GONE
from tidemark_replica.storage.errors import TableStopped

_GONE = ("LogSegment", "Gap between checkpoint")
"""Words of delta-rs's errors for a version whose log is not whole."""


@dataclass(frozen=True)
class LiveFile:
    """A file of a version. `partition`: values by logical name. `mask`: the rows that are kept; None: all."""

    path: str
    size: int
    partition: Mapping[str, pa.Scalar]
    mask: pa.BooleanArray | None


class TableVersion:
    """An opened version. Its features are known to be readable."""

    def __init__(self, storage: Storage, table: deltalake.DeltaTable) -> None:
        check_features(protocol_of(table))
        self._storage, self._table = storage, table
        self.version = int(table.version())
        self.definition = DeltaDefinition.of_table(table)

    def files(self, paths: Collection[str] | None = None) -> dict[str, LiveFile]:
        """The files of the version (of these paths) by path, as the log has them."""
        with self._storage.errors("reading the list of files"):
            actions = pa.table(self._table.get_add_actions(flatten=False))
        if paths is not None:
            actions = actions.filter(pc.is_in(actions.column("path"), pa.array(list(paths), pa.string())))
        masks = self._masks()
        partitioned = "partition" in actions.column_names and actions.num_rows
        values = actions.column("partition").combine_chunks() if partitioned else None
        columns = {} if values is None else dict(zip(values.type.names, values.flatten(), strict=True))
        found = {}
        for i, (path, size) in enumerate(
            zip(actions.column("path").to_pylist(), actions.column("size_bytes").to_pylist(), strict=True)
        ):
            partition = {name: column[i] for name, column in columns.items()}
            found[path] = LiveFile(path, size, partition, masks.get(unquote(path)))
        return found

    def _masks(self) -> dict[str, pa.BooleanArray]:
        """The kept rows of files with deletion vectors, by decoded path."""
        try:
            vectors = pa.table(self._table.deletion_vectors())
        except DeltaError as error:
            reason = VERSION_GONE if "not found" in str(error).lower() else FILE_UNREADABLE
            text = f"deletion vectors of version {self.version} cannot be read: {self._storage.redacted(error)}"
            raise TableStopped(reason, text) from None
        root = unquote(str(self._table.table_uri)).rstrip("/") + "/"
        masks: dict[str, pa.BooleanArray] = {}
        for batch in vectors.to_batches():
            for uri, mask in zip(batch.column("filepath").to_pylist(), batch.column("selection_vector"), strict=True):
                decoded = unquote(uri)
                if not decoded.startswith(root):
                    raise TableStopped(FEATURE_NOT_SUPPORTED, f"file {decoded} is outside the table")
                masks[decoded.removeprefix(root)] = mask.values
        return masks


def open_version(storage: Storage, version: int | None = None) -> TableVersion:
    """The table at the version, by default at its newest. Raises TableStopped (VersionGone, TableMissing,
    FeatureNotSupported), StorageError."""
    check_location(storage)
    storage.probe()
    try:
        return TableVersion(storage, _opened(storage, version))
    except TableNotFoundError:
        pass
    except DeltaError as error:
        # the log ends before the version, or lacks an entry that it needs; all else is a failure of the store
        if version is None or not any(words in str(error) for words in _GONE):
            with storage.errors("opening the Delta table"):
                raise
    if version is not None and (newest := newest_version(storage)) is not None:
        raise TableStopped(VERSION_GONE, f"version {version} of {storage.location} is gone; the newest is {newest}")
    raise TableStopped(TABLE_MISSING, f"there is no Delta table at {storage.location}")


def newest_version(storage: Storage) -> int | None:
    """The number of the newest version; None where there is no table."""
    with storage.errors("opening the Delta table"):
        try:
            return int(_opened(storage, None).version())
        except TableNotFoundError:
            return None


def _opened(storage: Storage, version: int | None) -> deltalake.DeltaTable:
    return deltalake.DeltaTable(storage.location, version=version, storage_options=storage.settings)


def check_location(storage: Storage) -> None:
    """Raises TableStopped where the location leads into a folder of the pod."""
    if storage.local_path is None:
        return
    real = os.path.realpath(storage.local_path)
    if folder := forbidden_folder(real):
        raise TableStopped(FEATURE_NOT_SUPPORTED, f"{storage.location} leads into {folder}, whose files are the pod's")
