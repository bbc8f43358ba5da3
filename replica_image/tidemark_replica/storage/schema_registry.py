"""A registry of schemas, by the REST interface of Confluent's: Karapace and Apicurio (ccompat) have it, too.

    GET /schemas/ids/ID                              the schema that a frame names
    GET /subjects/SUBJECT/versions/VERSION|latest    a schema to read with

What an id stands for never changes, so an answer is kept. No answer is ever guessed: while the registry is away, and
for PATIENCE_SECONDS after it did not know an id (its nodes may not have heard of it yet), `RegistryAway` is raised.
"""

from __future__ import annotations

import base64
import json
import ssl
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from time import monotonic
from typing import Any
from urllib.parse import quote, urlsplit

from tidemark_replica.storage.errors import IngestionError

REQUEST_SECONDS = 2.0
PATIENCE_SECONDS = 30.0
PAUSE_SECONDS = 2.0
"""How long nothing is asked after the registry was away."""
ANSWER_BYTES_MAX = 4 << 20
FORGET_SECONDS = 600.0
"""How long an id that is not registered is not asked for again."""
KEPT_MAX, MISSING_MAX, REFERENCES_MAX = 1000, 20_000, 64
SECRET_KEYS = frozenset({"username", "password", "token", "ca.crt"})
_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"


class RegistryAway(IngestionError):
    """The registry does not answer, or not as one; what needs it waits. The message says why."""


class NotRegistered(IngestionError):
    """The registry has no such schema."""


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema. `kind`: AVRO, PROTOBUF or JSON. `text`: Protobuf's is a FileDescriptorProto in base64. `imports`: the
    schemas that it refers to, by the names that it has for them."""

    kind: str
    text: str
    imports: tuple[tuple[str, str], ...] = ()


class SchemaRegistry:
    """The registry at `url`; used by one thread. `read_secret` gives the Secret's data anew for each request; None: it
    needs none."""

    def __init__(self, url: str, read_secret: Callable[[], Mapping[str, str]] | None) -> None:
        self._url, self._read_secret = urlsplit(url), read_secret
        self._kept: OrderedDict[int, RegisteredSchema] = OrderedDict()
        self._missing: OrderedDict[int, tuple[float, bool]] = OrderedDict()
        """Ids that it did not know: the time of the first question, and whether that was so for long enough."""
        self._paused_until, self._why = 0.0, ""

    def by_id(self, id: int) -> RegisteredSchema:
        """The schema with the id. Raises RegistryAway, NotRegistered."""
        if id in self._kept:
            self._kept.move_to_end(id)
            return self._kept[id]
        first, is_sure = self._missing.get(id, (monotonic(), False))
        if is_sure and monotonic() - first < FORGET_SECONDS:
            raise NotRegistered(f"the registry has no schema {id}")
        path = f"/schemas/ids/{id}"
        try:
            found = self._schema(self._get(path), lambda: self._get(path, serialized=True))
        except NotRegistered:
            self._not_there(id, monotonic() if is_sure else first)
            raise
        self._missing.pop(id, None)
        self._kept[id] = found
        while len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        return found

    def by_subject(self, subject: str, version: int) -> RegisteredSchema:
        """A version of a subject; 0 is the newest. Raises RegistryAway, NotRegistered."""
        path = f"/subjects/{quote(subject, safe='')}/versions/{version or 'latest'}"
        answer = self._get(path)
        if not version and isinstance(answer.get("version"), int):
            path = f"/subjects/{quote(subject, safe='')}/versions/{answer['version']}"  # not a newer one meanwhile
        return self._schema(answer, lambda: self._get(path, serialized=True))

    def _not_there(self, id: int, first: float) -> None:
        """Notes that it does not know the id, as it did not at the time `first`. Raises RegistryAway until that is so
        for long enough."""
        is_sure = monotonic() - first >= PATIENCE_SECONDS
        self._missing[id] = (first, is_sure)
        while len(self._missing) > MISSING_MAX:
            self._missing.popitem(last=False)
        if not is_sure:
            raise RegistryAway(f"{self._place}: there is no schema {id} (yet)") from None

    def _schema(self, answer: Mapping[str, Any], serialized: Callable[[], Mapping[str, Any]]) -> RegisteredSchema:
        kind = answer.get("schemaType", "AVRO")
        if kind == "PROTOBUF":
            answer = {**answer, **serialized()}
        text, references = answer.get("schema"), answer.get("references") or []
        if not isinstance(text, str) or not isinstance(kind, str) or not isinstance(references, list):
            raise self._away("the answer is not a registry's")
        imports: dict[str, str] = {}
        self._follow(references, kind, imports)
        return RegisteredSchema(kind, text, tuple(imports.items()))

    def _follow(self, references: list[Any], kind: str, found: dict[str, str]) -> None:
        """Gets the schemas that are referred to, those first that others need."""
        for each in references:
            version = each.get("version") if isinstance(each, dict) else None
            if not isinstance(version, int) or not all(isinstance(each.get(k), str) for k in ("name", "subject")):
                raise self._away("the answer's references are not a registry's")
            if each["name"] in found:
                continue
            if len(found) >= REFERENCES_MAX:
                raise NotRegistered(f"the schema refers to more than {REFERENCES_MAX} others")
            found[each["name"]] = ""
            path = f"/subjects/{quote(each['subject'], safe='')}/versions/{version}"
            answer = self._get(path, serialized=kind == "PROTOBUF")
            self._follow(answer.get("references") or [], kind, found)
            del found[each["name"]]
            found[each["name"]] = str(answer.get("schema"))

    @property
    def _place(self) -> str:
        return f"the registry at {self._url.hostname}"

    def _away(self, why: str) -> RegistryAway:
        self._paused_until, self._why = monotonic() + PAUSE_SECONDS, f"{self._place}: {why}"
        return RegistryAway(self._why)

    def _get(self, path: str, serialized: bool = False) -> dict[str, Any]:
        """The JSON object that is answered. Raises RegistryAway, NotRegistered."""
        if monotonic() < self._paused_until:
            raise RegistryAway(self._why)
        secret = self._secret()
        connection = self._connection(secret)
        try:
            connection.request("GET", self._path(path, serialized), headers=_headers(secret))
            answer = connection.getresponse()
            data = _content(answer, monotonic() + REQUEST_SECONDS)
        except (OSError, HTTPException, ValueError) as error:
            # other errors' texts may quote headers
            text = f": {error}" if isinstance(error, OSError) else ""
            raise self._away(f"{type(error).__name__}{text}"[:200]) from None
        finally:
            connection.close()
        if answer.status == 404:
            raise NotRegistered(f"{self._place} has no {path}")
        if answer.status in (401, 403):
            raise self._away(f"it refuses the credentials (status {answer.status})")
        try:
            found = json.loads(data) if answer.status == 200 else None
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise self._away(f"it answers with status {answer.status}, and no schema")
        return found

    def _path(self, path: str, serialized: bool) -> str:
        return self._url.path.rstrip("/") + path + ("?format=serialized" if serialized else "")

    def _secret(self) -> Mapping[str, str]:
        try:
            secret = dict(self._read_secret()) if self._read_secret is not None else {}
        except IngestionError as error:
            raise RegistryAway(f"{self._place}: {error}") from None
        if unknown := sorted(secret.keys() - SECRET_KEYS):
            known = ", ".join(sorted(SECRET_KEYS))
            raise RegistryAway(f"the registry's Secret: keys {', '.join(unknown)} are not taken (known: {known})")
        return secret

    def _connection(self, secret: Mapping[str, str]) -> HTTPConnection:
        host = self._url.hostname or ""
        if self._url.scheme == "http":
            return HTTPConnection(host, self._url.port, timeout=REQUEST_SECONDS)
        try:
            context = ssl.create_default_context(cadata=secret.get("ca.crt"))
        except (ssl.SSLError, ValueError):
            raise RegistryAway("the registry's Secret: ca.crt is not a PEM certificate; correct it") from None
        return HTTPSConnection(host, self._url.port, timeout=REQUEST_SECONDS, context=context)


def _headers(secret: Mapping[str, str]) -> dict[str, str]:
    headers = {"Accept": _ACCEPT, "User-Agent": "tidemark", "Connection": "close"}
    if "token" in secret:
        return headers | {"Authorization": f"Bearer {secret['token']}"}
    if "username" in secret:
        pair = f"{secret['username']}:{secret.get('password', '')}".encode()
        return headers | {"Authorization": "Basic " + base64.b64encode(pair).decode()}
    return headers


def _content(answer: Any, deadline: float) -> bytes:
    """The body. Raises ValueError where it is too large, TimeoutError where it comes too slowly."""
    pieces, size = [], 0
    while piece := answer.read1(1 << 16):
        pieces.append(piece)
        size += len(piece)
        if size > ANSWER_BYTES_MAX:
            raise ValueError(f"the answer is larger than {ANSWER_BYTES_MAX} bytes")
        if monotonic() > deadline:
            raise TimeoutError("the answer comes too slowly")
    return b"".join(pieces)
