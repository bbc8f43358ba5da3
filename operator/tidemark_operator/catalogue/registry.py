"""The operator's memory of every DataSource and Dataflow. It can be rebuilt from the API server; it is kept because
readers, relations and statuses are asked for all the time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidemark_operator.catalogue.dataflow_state import DataflowState
from tidemark_operator.catalogue.file_requests import Requests
from tidemark_operator.catalogue.reader_index import ReaderIndex
from tidemark_operator.controller.ingester_choice import Ingester
from tidemark_operator.kube.cache import Key
from tidemark_operator.resources.addresses.allowed_hosts import AllowedHosts
from tidemark_operator.resources.conditions.data_source import IngestionFailure
from tidemark_protocol.messages.responses import IngestionStatus
from tidemark_protocol.plan.ingestion import IngestedTable, IngestionDescription
from tidemark_protocol.plan.successors import display_names


@dataclass
class SourceState:
    """The operator's memory of one DataSource.

    `pinned`: its tables and shards, as stored. `retired`: what was pinned before; some of its tables may be left to
    delete. `ingester`: as stored in the status. `failure`: what the ingester, or pinning, failed at. `edit`: why the
    tables are not those of the spec yet. `columns_left_out`: columns of published tables that are not followed, as
    text. `refused`: why the source is not read, whatever replicas report.
    `schema_unknown_of`: tables whose columns could not be inferred yet. `report`: the ingester's last one. `requests`:
    about its files, as stored. `reconciled`: the generation of the spec that all of this is about; None: none yet.
    """

    key: Key
    uid: str
    instance: str
    pinned: IngestionDescription | None = None
    pinned_number: int = 0
    retired: tuple[IngestionDescription, ...] = ()
    ingester: Ingester | None = None
    failure: IngestionFailure | None = None
    edit: IngestionFailure | None = None
    columns_left_out: str = ""
    refused: IngestionFailure | None = None
    schema_unknown_of: tuple[str, ...] = ()
    report: IngestionStatus | None = None
    requests: Requests = ()
    reconciled: int | None = None

    def tables(self) -> Iterator[tuple[str, IngestedTable]]:
        """The pinned tables, in their order, each with its display name (`tidemark_protocol/plan/successors.py`)."""
        pinned = self.pinned.tables if self.pinned else ()
        names = display_names(ingested.table.name for ingested in pinned)
        return ((names[ingested.table.name], ingested) for ingested in pinned)


class Registry:
    """`allowed_hosts`: the addresses that sources and sinks may connect to."""

    def __init__(self, allowed_hosts: AllowedHosts = AllowedHosts()) -> None:  # noqa: B008
        self._sources: dict[Key, SourceState] = {}
        self._dataflows: dict[Key, DataflowState] = {}
        self._readers = ReaderIndex()
        self.allowed_hosts = allowed_hosts

    def source(self, key: Key) -> SourceState | None:
        return self._sources.get(key)

    def dataflow(self, key: Key) -> DataflowState | None:
        return self._dataflows.get(key)

    def put_source(self, state: SourceState) -> SourceState:
        self._sources[state.key] = state
        return state

    def put_dataflow(self, state: DataflowState) -> DataflowState:
        self._dataflows[state.key] = state
        self._readers.put(state)
        return state

    def forget(self, key: Key) -> None:
        self._sources.pop(key, None)
        self._dataflows.pop(key, None)
        self._readers.forget(key)

    def known_keys(self) -> list[Key]:
        """The key of every object that is remembered, whether or not the object still exists."""
        return [*self._sources, *self._dataflows]

    def waiting_keys(self) -> list[Key]:
        """The keys of the DataSources without tables, and of the Dataflows without an active revision."""
        unpinned = [key for key, source in self._sources.items() if source.pinned is None]
        return unpinned + [key for key, dataflow in self._dataflows.items() if dataflow.active is None]

    @property
    def has_history(self) -> bool:
        """Whether an operator, this one or one before, has stored tables of a DataSource or a revision of a
        Dataflow."""
        stored = (dataflow.active or dataflow.revisions.pending for dataflow in self._dataflows.values())
        return any(source.pinned for source in self._sources.values()) or any(stored)

    def sources(self, namespace: str) -> list[SourceState]:
        return [s for s in self._sources.values() if s.key.namespace == namespace]

    def all_sources(self) -> list[SourceState]:
        return list(self._sources.values())

    def dataflows(self, namespace: str) -> list[DataflowState]:
        return [d for d in self._dataflows.values() if d.key.namespace == namespace]

    def users(self, key: Key) -> list[Key]:
        """Dataflows with a revision that reads the object, ordered by name."""
        return sorted((reader for reader in self._readers.of(key) if reader != key), key=lambda k: k.name)
