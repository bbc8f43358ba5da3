"""Queries over HTTP, and what is wrong with any call: real HTTP; a replica is scripted."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any, cast

import pytest

from tests.gateway.auth.test_rights import LISTS
from tests.gateway.server.served_http import MARK, QUERY, SUBSCRIBE, Replica, Served, arrow, broken_off, play, until
from tidemark_operator.gateway.admission.limits import PEEKS_BYTES
from tidemark_protocol.messages.responses import PeekError, PeekRows, PeekStashed
from tidemark_protocol.rows import arrow_batches
from tidemark_protocol.wire.password_login import PasswordLogin, encode

LOGIN = f"Bearer {encode(PasswordLogin('ns', 'anne', 'own'))}"
"""By a password, though it is the operator's own token."""


@pytest.mark.parametrize(
    ("accept", "type", "text"),
    [
        ("*/*", "application/x-ndjson", '{"a": 0}\n{"a": 1}\n{"a": 2}\n'),
        ("text/html, application/x-ndjson;q=0.5", "application/x-ndjson", '{"a": 0}\n{"a": 1}\n{"a": 2}\n'),
        (
            "application/json",
            "application/json",
            '{"as_of": 499, "export": "s.a", "rows": [\n{"a": 0},\n{"a": 1},\n{"a": 2}\n]}\n',
        ),
        ("text/csv", "text/csv", "a\r\n0\r\n1\r\n2\r\n"),
    ],
    ids=["any", "lines", "document", "csv"],
)
def test_an_answer_has_its_time_and_is_of_the_accepted_type(accept: str, type: str, text: str) -> None:
    async def story(served: Served) -> Any:
        async with served.get("/v1/query", QUERY, Accept=accept) as answer:
            assert "Access-Control-Allow-Origin" not in answer.headers
            return answer.status, answer.headers["Tidemark-As-Of"], answer.content_type, await answer.text()

    assert play(story) == (200, "499", type, text)


def test_a_long_statement_is_the_body_of_a_post() -> None:
    rest = {name: value for name, value in QUERY.items() if name != "sql"}

    async def story(served: Served) -> Any:
        long = f"SELECT * FROM {' ' * 4000} s.a"
        answers = []
        for params, body in ((rest, long.encode()), (QUERY, b""), (rest, b"\xff"), (rest, b"x" * 600_000)):
            async with served.post(params, body) as answer:
                answers.append((answer.status, await answer.text()))
        return answers

    (good, rows), (both, why), (not_text, _), (large, _) = play(story)
    assert (good, rows) == (200, '{"a": 0}\n{"a": 1}\n{"a": 2}\n')
    assert (both, not_text, large) == (400, 400, 413)
    assert "has its statement in the body" in why


@pytest.mark.parametrize(
    ("accept", "text"),
    [
        ("application/x-ndjson", ""),
        ("application/json", '{"as_of": 499, "export": "s.a", "rows": [\n]}\n'),
        ("text/csv", "a\r\n"),
    ],
)
def test_an_answer_without_rows_has_its_time_and_its_end(accept: str, text: str) -> None:
    async def story(served: Served) -> Any:
        async with served.get("/v1/query", QUERY, Accept=accept) as answer:
            return answer.status, answer.headers["Tidemark-As-Of"], await answer.text()

    assert play(story, Replica(PeekRows(arrow([]), 0))) == (200, "499", text)


def test_a_large_answer_is_the_same_whatever_its_pieces() -> None:
    """It is stashed at the replica, in batches that begin and end within pieces, and let go when it was read."""
    data = arrow(range(5000), rows=700)
    replica = Replica(PeekStashed(5000, len(data)), data)

    async def story(served: Served) -> Any:
        return (await served.text("/v1/query", QUERY))[1]

    assert [json.loads(line)["a"] for line in play(story, replica).splitlines()] == list(range(5000))
    assert len(replica.released) == 1


@pytest.mark.parametrize("path", ["/v1/query?sql=SELECT", "/v1/subscribe?subject=s.a"])
def test_a_client_that_cannot_tell_a_part_from_the_whole_is_refused(path: str) -> None:
    """HTTP/1.0 has no chunks: a body ends with its connection, however that ends."""

    async def story(served: Served) -> Any:
        return await served.raw(f"GET {path} HTTP/1.0\r\nHost: x\r\nAuthorization: Bearer annes\r\n\r\n".encode())

    head, _, body = play(story).partition("\r\n\r\n")
    assert head.splitlines()[0].split()[1] == "505"
    assert "proxy_http_version 1.1" in json.loads(body)["error"]


@pytest.mark.parametrize(
    ("request_line", "header", "status"),
    [
        (b"GET /v1/query?sql=SELECT HTTP/1.1", b"Authorization: Bearer my-secret\x01", 400),
        (b"GET /v1/query?sql=SELECT HTTP/1.1", b"Authorization: Bearer my-secret" + b"x" * 9000, 400),
        (b"GET /v1/query?sql=SELECT HTTP/1.1", b"Authorization: Bearer my-secret\xff", 401),
        (b"GET /v1/query?sql=SELECT HTTP/1.1", "Authorization: Bearer my-secret\u00fc".encode(), 401),
        ("GET /v1/query?sql=my-secret-\u00fc HTTP/1.1".encode(), b"X: y", 400),
        (b"GET /v1/query?sql=my-secret-\xff HTTP/1.1", b"X: y", 400),
        (b"GET /v1/query?sql=my-secret" + b"x" * 9000 + b" HTTP/1.1", b"X: y", 400),
        (b"GET http://[my-secret/v1/query HTTP/1.1", b"X: y", 400),
        (b"GET /v1/query?sql=my-secret HTTP/1.1 HTTP/1.1", b"X: y", 400),
        (b"my-secret /v1/query HTTP/1.1", b"X: y", 400),
    ],
)
def test_no_token_and_no_statement_is_logged(
    request_line: bytes, header: bytes, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Not that of a request that is no HTTP, either."""
    caplog.set_level(logging.DEBUG)
    answer = play(
        lambda served: served.raw(request_line + b"\r\n" + header + b"\r\nHost: x\r\nConnection: close\r\n\r\n")
    )
    assert (int(answer.split()[1]), "secret" in caplog.text) == (status, False)


@pytest.mark.parametrize("accept", ["application/x-ndjson", "application/json", "text/csv"])
def test_crash_a_part_of_an_answer_is_never_taken_for_the_whole(accept: str) -> None:
    """The replica is lost while the client reads: the body has no end."""
    data = arrow(range(5000), rows=700)
    replica = Replica(PeekStashed(5000, len(data)), data, lost=len(data) // 2)

    async def story(served: Served) -> Any:
        async with served.get("/v1/query", QUERY, Accept=accept) as answer:
            assert answer.status == 200
            return await broken_off(answer)

    text = play(story, replica)
    if accept == "application/x-ndjson":
        assert json.loads(text.splitlines()[-1])["__error"]["reason"] == "ABORTED"
    assert len(replica.released) == 1


def test_a_batch_that_is_too_large_for_memory_ends_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_batches, "BATCH_BYTES_MAX", 1000)
    data = arrow(range(5000))

    async def story(served: Served) -> Any:
        return await served.text("/v1/query", QUERY)

    status, text = play(story, Replica(PeekStashed(5000, len(data)), data))
    assert (status, json.loads(text)["reason"]) == (400, "INVALID_ARGUMENT")
    assert "which HTTP does not take" in json.loads(text)["error"]


def test_a_client_that_takes_nothing_of_a_broken_answer_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the rows that were being sent, nor its place among the calls, nor the connection."""
    monkeypatch.setattr("tidemark_operator.gateway.server.http_reads.CHUNK_SECONDS", 0.05)
    monkeypatch.setattr("tidemark_operator.gateway.streams.answer_stream.CHUNK_SECONDS", 0.05)
    data = arrow(range(1_000_000))

    async def story(served: Served) -> Any:
        reader, writer = await served.connected()
        cast(asyncio.Transport, writer.transport).pause_reading()
        path = "/v1/query?namespace=ns&instance=default&sql=SELECT%20*%20FROM%20s.a"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer annes\r\n\r\n".encode())
        await until(lambda: served.limits.peeks.free < PEEKS_BYTES)
        others = asyncio.create_task(served.limits.peeks.acquire("anne", PEEKS_BYTES))
        await until(lambda: served.limits.peeks.is_wanted("anne"))
        await until(lambda: served.limits.calls.free == 256)
        await others
        cast(asyncio.Transport, writer.transport).resume_reading()
        text = (await reader.read()).decode()
        writer.close()
        return text.splitlines()[-1]

    assert "999999" not in play(story, Replica(PeekRows(data, 1_000_000)))


def test_large_answers_that_wait_for_their_turn_delay_no_other_query() -> None:
    """The replica has them: the gateway's memory is for others."""
    data = arrow(range(5000))

    async def story(served: Served) -> Any:
        sending = [await served.limits.texts.acquire("anne") for _ in range(2)]
        large = asyncio.create_task(served.text("/v1/query", QUERY))
        await until(lambda: served.limits.texts.is_wanted("anne"))
        free = served.limits.peeks.free
        for each in sending:
            each.shrink(0)
        return free, (await large)[0]

    assert play(story, Replica(PeekStashed(5000, len(data)), data)) == (PEEKS_BYTES, 200)


@pytest.mark.parametrize(
    ("path", "change", "status", "reason", "text"),
    [
        ("/v1/query", {"sql": "SELECT * FROM s.a", "as_of": "99"}, 409, "OUT_OF_RANGE", "only from"),
        ("/v1/query", {"as_of": "yesterday"}, 400, "INVALID_ARGUMENT", "as_of: 'yesterday' is neither"),
        ("/v1/query", {"as-of": "5"}, 400, "INVALID_ARGUMENT", "no parameter 'as-of': it has namespace, sql"),
        ("/v1/query", {"strict": "maybe"}, 400, "INVALID_ARGUMENT", "true or false"),
        ("/v1/query", {"strict": "", "as_of": "400"}, 400, "INVALID_ARGUMENT", "choose one"),
        ("/v1/subscribe", {"as_of": "99"}, 409, "OUT_OF_RANGE", "only from"),
        ("/v1/subscribe", {"up_to": "100"}, 400, "INVALID_ARGUMENT", "choose a later end"),
        ("/v1/subscribe", {"Last_Event_ID": f"99.{MARK}"}, 409, "OUT_OF_RANGE", "only from"),
        ("/v1/subscribe", {"Last_Event_ID": "450"}, 409, "INVALID_ARGUMENT", "begin without Last-Event-ID"),
        ("/v1/subscribe", {"Last_Event_ID": f"450.{MARK[::-1]}"}, 409, "INVALID_ARGUMENT", "not what it was"),
        ("/v1/subscribe", {"Last_Event_ID": "x"}, 400, "INVALID_ARGUMENT", "Last-Event-ID"),
        ("/v1/query", {"Authorization": "Bearer guessed"}, 401, "UNAUTHENTICATED", "token is unknown"),
        ("/v1/query", {"Authorization": LOGIN}, 401, "UNAUTHENTICATED", "for the PostgreSQL protocol alone"),
        ("/v1/subscribe", {"Authorization": LOGIN}, 401, "UNAUTHENTICATED", "for the PostgreSQL protocol alone"),
        ("/v1/subscribe", {"Authorization": ""}, 401, "UNAUTHENTICATED", "no known token"),
        ("/v1/query", {"Accept": "text/html"}, 406, "INVALID_ARGUMENT", "Accept"),
        ("/v1/nothing", {}, 404, "NOT_FOUND", "/v1/nothing"),
    ],
)
def test_what_is_wrong_is_said_by_name(path: str, change: dict[str, str], status: int, reason: str, text: str) -> None:
    headers = {name: value for name, value in change.items() if name[0].isupper()}
    params = {**(QUERY if path == "/v1/query" else SUBSCRIBE), **{n: v for n, v in change.items() if n not in headers}}
    got, answer = play(lambda served: served.text(path, params, **headers))
    assert (got, json.loads(answer)["reason"]) == (status, reason)
    assert text in json.loads(answer)["error"]


@pytest.mark.parametrize(("path", "params"), [("/v1/query", QUERY), ("/v1/subscribe", SUBSCRIBE)])
def test_rights_and_limits_are_those_of_grpc(path: str, params: dict[str, str]) -> None:
    async def story(served: Served) -> Any:
        forbidden = await served.text(path, params)
        hold = [served.limits.calls.hold("anne") for _ in range(128)]
        for each in hold:
            await each.__aenter__()
        async with served.get(path, params) as answer:
            full = answer.status, answer.headers["Retry-After"], (await answer.json())["reason"]
        for each in hold:
            await each.__aexit__(None, None, None)
        return forbidden, full

    (status, text), full = play(story, allowed=LISTS)
    assert (status, json.loads(text)["reason"]) == (403, "PERMISSION_DENIED")
    assert "may not get datasources/data s" in text
    assert full == (429, "1", "RESOURCE_EXHAUSTED")


def test_an_error_in_the_data_is_an_error_of_the_answer() -> None:
    status, text = play(lambda served: served.text("/v1/query", QUERY), Replica(PeekError("DIVIDE_BY_ZERO: 1 / 0")))
    assert (status, json.loads(text)) == (409, {"error": "DIVIDE_BY_ZERO: 1 / 0", "reason": "FAILED_PRECONDITION"})
