"""Requests about files, as the gateway takes them: of which table, and what is refused before anything is stored."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from tests.protocol.samples import INGESTION
from tidemark_operator.catalogue.registry import Registry, SourceState
from tidemark_operator.errors import QueryNotReady, QueryRefused
from tidemark_operator.handlers.reconcile.data_source import DataSourceReconciler
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.introspection.files import change_file
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATA_SOURCES, ApiError
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.commands import RELEASE, REREAD
from tidemark_protocol.messages.responses import IngestionStatus, SourceFile
from tidemark_protocol.plan.ingestion import FilesSource, FilesTable, IngestionDescription

KEY = Key(DATA_SOURCES, "ns", "drop")
TABLES = (FilesTable("a", "csv", "/in/a"), FilesTable("b", "csv", "/in/b"))
TWO_TABLES = IngestionDescription(**{**vars(INGESTION), "source": FilesSource(TABLES)})


class Sources:
    """Records requests, or fails as the API server does."""

    def __init__(self, failure: ApiError | None = None) -> None:
        self.asked: list[tuple[Key, str, str, str]] = []
        self.failure = failure

    async def request_file(self, key: Key, action: str, table: str, file: str) -> int:
        if self.failure is not None:
            raise self.failure
        self.asked.append((key, action, table, file))
        return 7


def ask(
    file: str,
    *,
    sources: Sources | None = None,
    action: str = RELEASE,
    pinned: IngestionDescription | None = TWO_TABLES,
) -> tuple[Key, str, str, str]:
    """The stored request about this file."""
    registry, asked = Registry(), sources or Sources()
    report = IngestionStatus(GlobalId("uid"), "running", files=(SourceFile("b", "known.csv", 1, "read"),))
    registry.put_source(SourceState(KEY, "uid", "default", pinned=pinned, report=report))
    context = cast(ReconcileContext, SimpleNamespace(registry=registry))
    changed = change_file(context, cast(DataSourceReconciler, asked), "ns", "drop", action, file)
    assert asyncio.run(changed) == 7
    return asked.asked[0]


def test_the_table_is_given_or_the_one_that_has_such_a_file() -> None:
    """Or the only one that there is."""
    assert ask("a/known.csv") == (KEY, RELEASE, "a", "known.csv")
    assert ask("known.csv", action=REREAD) == (KEY, REREAD, "b", "known.csv")
    one = IngestionDescription(**{**vars(INGESTION), "source": FilesSource(TABLES[:1])})
    assert ask("other.csv", pinned=one) == (KEY, RELEASE, "a", "other.csv")


@pytest.mark.parametrize(
    ("file", "action", "message"),
    [
        ("other.csv", RELEASE, "file other.csv may be of several tables"),
        ("c/other.csv", RELEASE, "has no table c of files: a, b"),
        ("a/", RELEASE, "a file has a name of 1 to 255 characters"),
        ("a/" + 256 * "x", RELEASE, "a file has a name of 1 to 255 characters"),
        ("a/1.csv", "remove", "there is no action 'remove'"),
    ],
)
def test_a_request_that_names_no_file_is_refused(file: str, action: str, message: str) -> None:
    """Nothing is stored."""
    with pytest.raises(QueryRefused, match=message):
        ask(file, action=action)


def test_a_request_that_cannot_be_stored_is_not_taken() -> None:
    """Neither before the tables are known nor while the API server is away: the client asks again."""
    with pytest.raises(QueryNotReady, match="the tables of DataSource drop are not known yet"):
        ask("a/1.csv", pinned=None)
    with pytest.raises(QueryNotReady, match=r"could not be stored: gone; ask again"):
        ask("a/1.csv", sources=Sources(ApiError(0, "gone")))
