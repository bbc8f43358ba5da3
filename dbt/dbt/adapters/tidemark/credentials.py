"""A profile of type `tidemark`.

namespace        the Kubernetes namespace, which is the database
host, port       tidemark-pgwire
token            what the API server gave for the audience tidemark-gateway; or token_file, which is read anew for
                 each connection
sslmode, sslrootcert
instance         the ComputeInstance of new views; empty: the only one
wait, statement_seconds
                 whether a run waits until its views serve, and how long at most
strict           answers of tests have everything that was ingested when they were asked for
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from dbt.adapters.contracts.connection import Credentials
from dbt.adapters.tidemark.relation import SCHEMA
from dbt_common.exceptions import DbtRuntimeError

MAX_SECONDS = 2_000_000


@dataclass(kw_only=True)
class TidemarkCredentials(Credentials):
    """`retries`: how often a statement is sent again that the gateway could not take."""

    host: str
    schema: str = SCHEMA
    port: int = 5432
    user: str = "dbt"
    token: str = field(default="", repr=False)
    token_file: str = ""
    sslmode: str = "verify-full"
    sslrootcert: str = ""
    connect_timeout: int = 10
    instance: str = ""
    wait: bool = True
    statement_seconds: int = 600
    strict: bool = False
    retries: int = 5

    _ALIASES: ClassVar[dict[str, str]] = {
        "namespace": "database",
        "dbname": "database",
        "password": "token",
        "pass": "token",
    }

    def __post_init__(self) -> None:
        """Raises DbtRuntimeError: a field cannot be."""
        if self.schema != SCHEMA:
            raise DbtRuntimeError(
                f"schema {self.schema!r} of the profile: a namespace has one schema, {SCHEMA}; leave it out, and give "
                "each developer a namespace"
            )
        if bool(self.token) == bool(self.token_file):
            raise DbtRuntimeError("the profile has token or token_file: kubectl create token ... gives one")
        if not 0 < self.statement_seconds <= MAX_SECONDS:
            raise DbtRuntimeError(f"statement_seconds of the profile is from 1 to {MAX_SECONDS}")

    @property
    def type(self) -> str:
        return "tidemark"

    @property
    def unique_field(self) -> str:
        return self.host

    def _connection_keys(self) -> tuple[str, ...]:
        shown = "host", "port", "user", "database", "schema", "sslmode", "sslrootcert", "token_file"
        return (*shown, "instance", "wait", "statement_seconds", "strict", "retries")

    def password(self) -> str:
        """The token, as it is now. Raises OSError: its file cannot be read."""
        return Path(self.token_file).read_text().strip() if self.token_file else self.token

    def libpq(self) -> dict[str, Any]:
        """The options of libpq for a connection. Raises OSError."""
        settings = {
            "tidemark.wait": "on" if self.wait else "off",
            "tidemark.strict": "on" if self.strict else "off",
            "statement_timeout": f"{self.statement_seconds}s",
        }
        if self.instance:
            settings["tidemark.instance"] = self.instance
        given = {
            "host": self.host,
            "port": self.port,
            "user": self.user,
            "dbname": self.database,
            "password": self.password(),
            "sslmode": self.sslmode,
            "sslrootcert": self.sslrootcert,
            "connect_timeout": self.connect_timeout,
            "application_name": "dbt",
            "options": " ".join(f"-c {name}={value}" for name, value in settings.items()),
        }
        return {name: value for name, value in given.items() if value != ""}
