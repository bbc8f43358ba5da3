"""Options of a read, as `.option(...)` gives them: texts, whose names Spark takes in any case."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidemark.connection import Connection, connect
from tidemark.errors import InterfaceError
from tidemark.gateway.kubectl import Kubectl
from tidemark_protocol.times import parse

_PARAMETERS = (
    "server namespace instance token token_file service_account certificate_authority gateway_file kubeconfig context "
    "operator_namespace"
).split()
_CONNECTION = {re.sub(r"_(.)", lambda found: found[1].upper(), name): name for name in _PARAMETERS}
"""Options of the connection, such as `tokenFile`, and the parameters of `tidemark.connect` that they are."""
_READ = ("path", "relation", "query", "asOf", "readChangeFeed", "snapshot")
_NAMES = {name.lower(): name for name in (*_CONNECTION, *_READ)}
"""Spark gives names in lower case."""
_WORDS = {"true": True, "false": False}


@dataclass(frozen=True)
class ReadOptions:
    """The relation or query to read, and the way to the gateway. Executors receive the options by pickle.

    `subject`: a relation's name, or a SELECT. `connection`: parameters of `tidemark.connect`, `namespace` among them.
    """

    subject: str
    is_query: bool
    as_of: int | None
    change_feed: bool
    snapshot: bool
    connection: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, options: Mapping[str, str]) -> ReadOptions:
        """Read the options. Without `namespace` it is that of the kubeconfig's context on this machine.

        Raises:
            InterfaceError: an option is missing, not known, or has no such value.
            GatewayFailed: the kubeconfig has no such context.
        """
        given = {_NAMES.get(name.lower(), name): value for name, value in options.items()}
        if unknown := sorted(given.keys() - _NAMES.values()):
            raise InterfaceError(f"format tidemark has no option {unknown[0]}: it has {', '.join(_NAMES.values())}")
        subjects = [name for name in ("path", "relation", "query") if given.get(name)]
        if len(subjects) != 1:
            raise InterfaceError(
                "name what to read, and only once: load(RELATION), option relation with a name, or option query with a "
                "SELECT"
            )
        as_of = None
        if "asOf" in given:
            try:
                as_of = parse(given["asOf"])
            except ValueError as error:
                raise InterfaceError(f"option asOf: {error}") from None
        change_feed = _flag(given, "readChangeFeed", otherwise=False)
        snapshot = _flag(given, "snapshot", otherwise=True)
        connection = {_CONNECTION[name]: value for name, value in given.items() if name in _CONNECTION}
        if not connection.get("namespace"):
            kubeconfig = connection.get("kubeconfig")
            kubectl = Kubectl(Path(kubeconfig) if kubeconfig else None, connection.get("context"))
            connection["namespace"] = kubectl.namespace()
        return cls(given[subjects[0]], subjects == ["query"], as_of, change_feed, snapshot, connection)

    @property
    def select(self) -> str:
        """A SELECT of all that is read."""
        if self.is_query:
            return f"SELECT * FROM (\n{self.subject}\n) AS `read`"
        return f"SELECT * FROM {'.'.join('`' + part.replace('`', '``') + '`' for part in self.subject.split('.'))}"

    def connect(self) -> Connection:
        """Raises as `tidemark.connect`."""
        return connect(**self.connection)  # type: ignore[arg-type]


def _flag(given: Mapping[str, str], name: str, otherwise: bool) -> bool:
    if name not in given:
        return otherwise
    found = _WORDS.get(given[name].lower())
    if found is None:
        raise InterfaceError(f"option {name} is true or false, not {given[name]!r}")
    return found
