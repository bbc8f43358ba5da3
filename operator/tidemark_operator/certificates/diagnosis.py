"""The reason why a peer's certificate is not accepted: gRPC reports `verification failed` without the certificate's
name.

One TLS handshake reads the peer's certificate and is closed. Its result is for messages only; no decision uses it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Mapping
from typing import Any

from tidemark_protocol.tls.identities import Identity, identity_of

SECONDS = 5.0
_UNIX = "unix:"


async def diagnose(address: str, peer: Identity, authorities: bytes) -> str:
    """The fault of the certificate at the address; empty: it has none, or no process listens there."""
    try:
        async with asyncio.timeout(SECONDS):
            shown = await _presented_uris(address, peer, authorities)
    except ssl.SSLCertVerificationError as error:
        return f"{peer} presented a certificate that is not trusted: {error.verify_message}"
    except ssl.SSLError as error:
        return f"{peer} does not complete a TLS handshake: {error.reason or error}"
    except (ConnectionResetError, ConnectionAbortedError, BrokenPipeError):
        return f"{peer} closed the connection during the TLS handshake"
    except (OSError, TimeoutError):
        return ""
    if peer.uri in shown:
        return ""
    return f"{peer} presented a certificate for {', '.join(map(_named, shown)) or 'no name'}"


async def _presented_uris(address: str, peer: Identity, authorities: bytes) -> list[str]:
    """The URIs of the valid certificate that the address presents. Raises ssl.SSLError, OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=authorities.decode("ascii"))
    context.set_alpn_protocols(["h2"])
    _, writer = await _connect(address, context, peer.host)
    certificate: Mapping[str, Any] = writer.get_extra_info("peercert") or {}
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return [value for kind, value in certificate.get("subjectAltName", ()) if kind == "URI"]


async def _connect(
    address: str, context: ssl.SSLContext, host: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if address.startswith(_UNIX):
        path = address.removeprefix(_UNIX)
        path = path.removeprefix("//") if path.startswith("//") else path
        return await asyncio.open_unix_connection(path, ssl=context, server_hostname=host)
    name, _, port = address.removeprefix("dns:").lstrip("/").rpartition(":")
    return await asyncio.open_connection(name.strip("[]"), int(port), ssl=context, server_hostname=host)


def _named(uri: str) -> str:
    identity = identity_of(uri)
    return uri if identity is None else str(identity)
