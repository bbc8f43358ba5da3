"""The dataflows of subscribes and copies, and the messages of a batch."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from tests.controller.harness import EMPTY, at
from tests.gateway.auth.test_rights import LISTS, Caller
from tidemark_operator.controller.answers.subscribes import SubscribeAdvanced
from tidemark_operator.errors import QueryRefused, SubscribeNotWhole
from tidemark_operator.gateway.admission.limits import GatewayLimits
from tidemark_operator.gateway.auth.access import Forbidden
from tidemark_operator.gateway.streams.copy import Copies, _check_format
from tidemark_operator.gateway.streams.stream_dataflow import sql_of
from tidemark_operator.gateway.streams.subscribe import CHUNK_BYTES, GrpcSubscriber, _check
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.responses import SubscribeBatch
from tidemark_protocol.pb.gateway_pb2 import CopyRequest, SubscribeRequest
from tidemark_protocol.types import BIGINT, Column, SqlType


@pytest.mark.parametrize(
    ("subject", "sql"),
    [
        ("delays", "SELECT * FROM `delays`"),
        ("tpch.line-items", "SELECT * FROM `tpch`.`line-items`"),
        ("`by-nation`", "SELECT * FROM `by-nation`"),
        ("SELECT 1", "SELECT 1"),
        ("a`; DROP", "a`; DROP"),
    ],
)
def test_a_name_means_all_of_its_rows(subject: str, sql: str) -> None:
    """Names may have dashes; what has blanks is SQL, for the planner to judge."""
    assert sql_of(subject) == sql


@pytest.mark.parametrize(
    ("type", "format"), [(SqlType.array(BIGINT), "csv"), (SqlType("binary"), "csv"), (BIGINT, "xls")]
)
def test_a_type_without_a_form_in_the_format_is_refused_before_anything_runs(type: SqlType, format: str) -> None:
    """With the column, or the formats that there are."""
    with pytest.raises(QueryRefused, match=r"copy it as parquet|choose one of parquet, csv"):
        _check_format(format, (Column("x", type),))
    _check_format("parquet", (Column("x", type),))


def test_a_copy_without_the_right_is_refused_before_planning() -> None:
    """Whatever it may read; and a place is free again then."""
    copies = Copies(cast(Any, None), GatewayLimits())
    request = CopyRequest(namespace="ns", subject="s.a", to="x", format="csv")
    caller = Caller(*LISTS, "get datasources/data s in namespace ns")
    for _ in range(20):
        with pytest.raises(Forbidden, match="may not create dataflows/copies in namespace ns"):
            asyncio.run(copies.serve(caller, request))


@pytest.mark.parametrize("up_to", [0, 10, 2**63 - 1])
def test_an_end_before_the_beginning_is_refused(up_to: int) -> None:
    """And one that is no time."""
    with pytest.raises(QueryRefused, match="choose a later end"):
        _check(10, up_to)
    _check(10, 11)
    _check(10, None)


def test_a_batch_goes_in_messages_that_fit() -> None:
    """All with its bounds: the lower is where the client is, which may be within the batch."""
    data = bytes(2 * CHUNK_BYTES + 1)
    news = SubscribeAdvanced(GlobalId("s"), SubscribeBatch(at(0), EMPTY, data), (at(7), 5))
    messages = messages_of(news)

    assert b"".join(m.arrow for m in messages) == data
    assert [m.more for m in messages] == [True, True, False]
    assert {(m.lower, m.lower_part, m.upper) for m in messages} == {(7, 5, 2**63 - 1)}
    nothing = SubscribeAdvanced(GlobalId("s"), SubscribeBatch(at(7), at(8)), (at(7), 5))
    (empty,) = messages_of(nothing)
    assert (empty.arrow, empty.more) == (b"", False)
    assert messages_of(nothing, progress=False) == []


UPDATES = b"updates"


@pytest.mark.parametrize(
    ("batch", "position"),
    [
        (SubscribeBatch(at(7), at(7), UPDATES, upper_part=5), (at(7), 0)),
        (SubscribeBatch(at(7), at(8), UPDATES, lower_part=5), (at(7), 5)),
        (SubscribeBatch(at(3), at(8), UPDATES), (at(7), 0)),
    ],
    ids=["the first part of a time", "the last part of a time", "updates that the client has"],
)
def test_only_a_client_that_knows_parts_is_sent_what_is_not_whole(
    batch: SubscribeBatch, position: tuple[Frontier, int]
) -> None:
    """For others an interval without times, or a time outside of it, would be a wrong answer."""
    news = SubscribeAdvanced(GlobalId("s"), batch, position)
    assert [m.arrow for m in messages_of(news)] == [UPDATES]
    with pytest.raises(SubscribeNotWhole, match="this client does not tell parts of a time apart"):
        messages_of(news, parts=False)
    nothing = SubscribeAdvanced(GlobalId("s"), replace(batch, updates=b""), position)
    assert messages_of(nothing, parts=False) == []
    whole = SubscribeAdvanced(GlobalId("s"), SubscribeBatch(at(7), at(9), UPDATES), (at(7), 0))
    assert [(m.lower, m.upper, m.arrow) for m in messages_of(whole, parts=False)] == [(7, 9, UPDATES)]


def messages_of(news: SubscribeAdvanced, progress: bool = True, parts: bool = True) -> list[Any]:
    client = GrpcSubscriber(None, SubscribeRequest(subject="t", progress=progress, parts=parts))

    async def collected() -> list[Any]:
        return [message.batch async for message in client.messages(news)]

    return asyncio.run(collected())
