"""Takes what is left of Iceberg tables away: tables that are not published any more, and files that none refers to."""

from __future__ import annotations

import logging
import time

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table.metadata import TableMetadata

from tidemark_persist import Storage
from tidemark_replica.sinks.published.iceberg_catalogue import CatalogueSettings, StorageIO, catalogue_errors, url_of
from tidemark_replica.sinks.published.iceberg_mirror import OWNER, IcebergMirror
from tidemark_replica.sinks.published.iceberg_notes import FOLDER, note_tables, noted_tables
from tidemark_replica.storage.source_secrets import SourceSecrets

LOG = logging.getLogger(__name__)


def drop_tables(
    storage: Storage, owner: str, settings: CatalogueSettings | None, secrets: SourceSecrets, but: str = ""
) -> None:
    """Drops the Iceberg tables of the note, but one, from the catalogue; their files stay. A table of another view or
    with files elsewhere is left. Without a catalogue nothing is dropped. Raises IcebergFailed, StorageError."""
    tables = noted_tables(storage)
    if not (others := [each for each in tables if each != but]):
        return
    if settings is None:
        LOG.warning("Iceberg tables %s stay in their catalogue: the ComputeInstance names none", ", ".join(others))
        return
    catalogue = settings.connect(secrets, storage)
    for name in others:
        with catalogue_errors(secrets):
            found = catalogue.find_table(tuple(name.split(".")))
            if found is None or found.metadata.properties.get(OWNER) != owner:
                continue
            if found.metadata.location != url_of(storage):
                continue
            try:
                catalogue.drop_table(tuple(name.split(".")))
            except NoSuchTableError:
                continue
    note_tables(storage, [each for each in tables if each == but])


def remove_unused_files(of: IcebergMirror) -> int:
    """Deletes files of earlier snapshots and metadata once they are older than the retention. Returns how many. Raises
    IcebergFailed, StorageError."""
    storage = Storage.at(of.options.location)
    before = int(time.time() * 1000) - max(of.options.retention_hours, 1) * 3_600_000
    old = [file.path for file in storage.list(FOLDER) if file.modified_ms < before and not file.path.endswith(".json")]
    old += [f.path for f in storage.list(FOLDER) if f.modified_ms < before and f.path.endswith(".metadata.json")]
    if not old:
        return 0
    catalogue = of.settings.connect(of.secrets, storage)
    with catalogue_errors(of.secrets):
        found = catalogue.find_table(tuple(of.table.split(".")))
        if found is None or found.metadata.location != url_of(storage):
            return 0
        used = {*_used_files(found.metadata, storage), found.metadata_location}
    names = {each.rpartition("/")[2] for each in used}  # servers spell file:/// otherwise
    unused = [path for path in old if path.rpartition("/")[2] not in names]
    for path in unused:
        storage.remove(path)
    return len(unused)


def _used_files(metadata: TableMetadata, storage: Storage) -> set[str]:
    """The files that the table's snapshots and its log of metadata name."""
    io = StorageIO(storage)
    used = {each.metadata_file for each in metadata.metadata_log}
    for snapshot in metadata.snapshots:
        used.add(snapshot.manifest_list)
        try:
            used.update(each.manifest_path for each in snapshot.manifests(io))
        except FileNotFoundError:
            continue
    return used
