"""`tidemark-pgwire`: serves the PostgreSQL protocol in front of the operator's gateway.

    psql, drivers ──TLS──► tidemark-pgwire ──gRPC, the user's token──► gateway ──► replicas

The process has no rights of its own, no credentials and no state.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from tidemark.errors import Error
from tidemark.gateway import discovery
from tidemark.gateway.discovery import Credentials, Gateway, Location
from tidemark_pgwire.gateway import GatewayLink
from tidemark_pgwire.server import ListenerRefused, PgServer, ServerCertificate
from tidemark_pgwire.session.session import SessionLimits
from tidemark_pgwire.watchdog import watch

LOG = logging.getLogger(__name__)


def seconds(text: str) -> float:
    """An option's number of seconds. Raises ValueError, ArgumentTypeError: it is none, or less than 0."""
    if not (number := float(text)) >= 0:
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds: give 0 or more")
    return number


_LIMITS: Mapping[str, tuple[str, Callable[[str], float], str]] = {
    "--max-connections": ("connections", int, "default: %(default)s"),
    "--max-user-connections": (
        "user_connections", int, "of one user; 0, the default: a tenth of --max-connections, at least 20",
    ),
    "--statement-seconds": (
        "statement_seconds", seconds, "a longer statement ends, SUBSCRIBE excepted; default: %(default)s",
    ),
    "--stall-seconds": (
        "stall_seconds", seconds,
        "a client that takes nothing of its rows for so long is disconnected; default: %(default)s",
    ),
    "--write-bytes": (
        "write_bytes", int,
        "of rows that INSERT and COPY brought and that are not committed yet, in temporary files; a user has half of "
        "them; default: %(default)s",
    ),
    "--idle-in-transaction-seconds": (
        "idle_seconds", seconds,
        "a client that sends nothing for so long, while its rows wait for COMMIT or for more of COPY, is disconnected, "
        "and they are forgotten; 0: never; default: %(default)s",
    ),
    "--transaction-seconds": (
        "transaction_seconds", seconds,
        "rows wait for COMMIT so long at most, whatever their client sends; then it is disconnected, and they are "
        "forgotten; 0: for ever; default: %(default)s",
    ),
}  # fmt: skip
"""Options that are fields of SessionLimits: the field, how its text is read, and the help."""


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="tidemark-pgwire", description=(__doc__ or "").split("\n")[0])
    found.add_argument("--listen", default="127.0.0.1:5432", metavar="HOST:PORT", help="default: %(default)s")
    found.add_argument("--certificate", type=Path, metavar="FILE", help="of this server, as PEM, with its chain")
    found.add_argument("--key", type=Path, metavar="FILE", help="of the certificate, as PEM")
    found.add_argument(
        "--insecure-loopback", action="store_true", help="take connections without TLS; --listen must be loopback"
    )
    found.add_argument("--gateway", metavar="HOST:PORT", help="the operator's gateway")
    found.add_argument("--gateway-ca", type=Path, metavar="FILE", help="the authority of the gateway's certificate")
    found.add_argument(
        "--gateway-file", type=Path, metavar="FILE", help="gateway.json of an operator on this machine, instead"
    )
    for option, (field, type, text) in _LIMITS.items():
        shown = option.removeprefix("--").replace("-", "_").upper()
        default = getattr(SessionLimits, field)
        found.add_argument(option, dest=field, type=type, default=default, metavar=shown, help=text)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    gc.collect()
    gc.freeze()  # a full collection walked the imported modules for 43 ms, and every answer waited for it
    try:
        asyncio.run(_serve(options))
    except (ListenerRefused, OSError, Error, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


async def _serve(options: argparse.Namespace) -> None:
    if (options.certificate is None) != (options.key is None):
        raise ListenerRefused("--certificate and --key belong together")
    if (options.gateway is None) == (options.gateway_file is None):
        raise ListenerRefused("give --gateway HOST:PORT, or --gateway-file FILE")
    host, port = _address(options.listen)
    certificate = None if options.certificate is None else ServerCertificate(options.certificate, options.key)
    limits = SessionLimits(**{field: getattr(options, field) for field, _, _ in _LIMITS.values()})
    link = GatewayLink(partial(_find, options))
    server = PgServer(link, limits, certificate, options.insecure_loopback)
    ended, watching = asyncio.Event(), asyncio.create_task(watch(), name="watchdog")
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    LOG.info("listening on %s:%s", host, await server.start(host, port))
    await ended.wait()
    await server.close()
    watching.cancel()


def _address(text: str) -> tuple[str, int]:
    """Host and port. Raises ListenerRefused."""
    host, _, port = text.rpartition(":")
    if not (host and port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise ListenerRefused(f"--listen is HOST:PORT, such as 127.0.0.1:5432, and not {text}")
    return host.strip("[]"), int(port)


def _find(options: argparse.Namespace) -> Gateway:
    """The gateway, without a token: each call has the token of its user. Raises Error."""
    location = Location(file=options.gateway_file, server=options.gateway, authority=options.gateway_ca)
    return discovery.find(location, os.environ, Credentials(text=""))
