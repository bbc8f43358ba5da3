"""An API server that dies in the middle of an answer, or is none: an ApiError like any other, which is tried again."""

from __future__ import annotations

import asyncio

import pytest
from kubernetes.aio import client

from tidemark_operator.kube.client import DATAFLOWS, ApiError, Kube

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"", "does not answer"),
        (HEAD + b'100\r\n\r\n{"kind":', "does not answer"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "does not answer"),
        (HEAD + b"5\r\n\r\nhello", "not an API server"),
    ],
    ids=["gone", "cut short", "another protocol", "no JSON"],
)
def test_crash_of_the_api_server_in_mid_answer_is_an_api_error(answer: bytes, says: str) -> None:
    """It ended the operator: whoever writes statuses, or lists anew, knows of ApiErrors alone."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    async def asked() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        configuration = client.Configuration()
        configuration.host = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server, client.ApiClient(configuration) as api:
            with pytest.raises(ApiError, match=says) as error:
                await Kube(api).get(DATAFLOWS, "ns", "d")
        assert error.value.status == 0

    asyncio.run(asked())
