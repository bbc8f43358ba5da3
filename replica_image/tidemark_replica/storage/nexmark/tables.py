"""The three tables of Nexmark, with the names and types of its SQL definitions. No row is ever taken back."""

from __future__ import annotations

from tidemark_protocol.plan.ingestion import SourceTable
from tidemark_protocol.types import Column, SqlType

_DDL: dict[str, tuple[str, tuple[tuple[int, ...], ...]]] = {
    "person": (
        "id bigint, name string, email_address string, credit_card string, city string, state string,"
        " date_time timestamp, extra string",
        ((0,),),
    ),
    "auction": (
        "id bigint, item_name string, description string, initial_bid bigint, reserve bigint, date_time timestamp,"
        " expires timestamp, seller bigint, category bigint, extra string",
        ((0,),),
    ),
    "bid": (
        "auction bigint, bidder bigint, price bigint, channel string, url string, date_time timestamp, extra string",
        (),
    ),
}


def _column(text: str) -> Column:
    name, type_ = text.strip().split(" ")
    return Column(name, SqlType.parse(type_), nullable=False)


TABLES: dict[str, SourceTable] = {
    name: SourceTable(name, tuple(map(_column, ddl.split(","))), keys=keys, monotonic=True)
    for name, (ddl, keys) in _DDL.items()
}
