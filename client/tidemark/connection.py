"""Connections: where the gateway is and who calls it, as the command line's options say it."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Self

from tidemark.changes import TimedChanges, follow
from tidemark.cursor import Cursor, milliseconds
from tidemark.errors import InterfaceError, NotSupportedError
from tidemark.gateway import discovery
from tidemark.gateway.kubectl import Kubectl
from tidemark.link import Link
from tidemark_protocol.pb.gateway_pb2 import SubscribeRequest

TOKEN_LIFETIME = "12h"
"""The lifetime of a ServiceAccount's token; the gateway ends a subscribe whose token is not."""


def connect(
    server: str | None = None,
    *,
    namespace: str | None = None,
    instance: str = "",
    token: str | None = None,
    token_file: str | Path | None = None,
    service_account: str | None = None,
    client_certificate: bool = False,
    certificate_authority: str | Path | None = None,
    gateway_file: str | Path | None = None,
    kubeconfig: str | Path | None = None,
    context: str | None = None,
    operator_namespace: str = discovery.OPERATOR_NAMESPACE,
    timeout: float | None = None,
) -> Connection:
    """A connection to the gateway at `server` (HOST:PORT), or found by the kubeconfig as `kubectl tidemark` does.

    The parameters are the options of `kubectl tidemark`. One of `token`, `token_file`, `service_account` and
    `client_certificate` says who calls; without any, the token of an operator on this machine does. `namespace`: by
    default the context's. `timeout`: seconds that each query may take; the gateway has a limit, too.

    Raises:
        InterfaceError: parameters exclude each other.
        GatewayUnknown: nothing holds the gateway's address.
        GatewayFailed: a file cannot be used, or the credentials cannot be had.
    """
    given = [name for name, value in (("token", token), ("token_file", token_file)) if value is not None]
    given += ["service_account"] * (service_account is not None) + ["client_certificate"] * client_certificate
    if len(given) > 1:
        raise InterfaceError(f"{' and '.join(given)} exclude each other: give one of them")
    if server is not None and gateway_file is not None:
        raise InterfaceError("server and gateway_file exclude each other: give one of them")
    kubectl = Kubectl(_path(kubeconfig), context)
    namespace = namespace or kubectl.namespace()
    location = discovery.Location(
        _path(gateway_file), server, _path(certificate_authority), operator_namespace, kubectl
    )
    credentials = discovery.Credentials(
        service_account, namespace, _path(token_file), client_certificate, TOKEN_LIFETIME, token
    )
    link = Link(partial(discovery.find, location, os.environ, credentials))
    return Connection(link, namespace, instance, timeout)


def _path(name: str | Path | None) -> Path | None:
    return None if name is None else Path(name)


class Connection:
    """A connection of PEP 249. It reads: there are no transactions, and each query is as of one time."""

    def __init__(self, link: Link, namespace: str, instance: str, timeout: float | None) -> None:
        self.link, self.namespace, self._instance, self._timeout = link, namespace, instance, timeout

    def cursor(self) -> Cursor:
        return Cursor(self.link, self.namespace, self._instance, self._timeout)

    def subscribe(
        self,
        subject: str,
        *,
        as_of: int | datetime | None = None,
        up_to: int | datetime | None = None,
        snapshot: bool = True,
        progress: bool = False,
        replica: str = "",
    ) -> AsyncGenerator[TimedChanges, None]:
        """The rows of a query or an export, then every change to them: `async for time, changes in ...`.

        `subject`: SQL, or the name of a table or export. `progress`: times up to which nothing changed come, too, with
        no changes. To go on after a time: `as_of=time, snapshot=False`. Errors come from the iteration.
        """
        request = self.subscribe_request(subject, as_of=as_of, up_to=up_to, snapshot=snapshot, replica=replica)
        return follow(self.link, request, progress)

    def subscribe_request(
        self,
        subject: str,
        *,
        as_of: int | datetime | None = None,
        up_to: int | datetime | None = None,
        snapshot: bool = True,
        replica: str = "",
    ) -> SubscribeRequest:
        """The message of a subscribe, which has batches without changes, too. Raises DataError: as `milliseconds`."""
        return SubscribeRequest(
            namespace=self.namespace,
            subject=subject,
            instance=self._instance,
            as_of=None if as_of is None else milliseconds(as_of),
            up_to=None if up_to is None else milliseconds(up_to),
            without_snapshot=not snapshot,
            progress=True,
            replica=replica,
            parts=True,
        )

    def commit(self) -> None:
        """Nothing: statements only read."""

    def rollback(self) -> None:
        """Raises NotSupportedError: there are no transactions."""
        raise NotSupportedError("there are no transactions: statements only read")

    def close(self) -> None:
        """End all calls and the way to the gateway."""
        self.link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
