"""A registry of schemas, by the REST interface of Confluent's: Karapace and Apicurio (ccompat) have it, too.

    GET /schemas/ids/ID                              the schema that a frame names
    GET /subjects/SUBJECT/versions/VERSION|latest    a schema to read with
    POST /subjects/SUBJECT/versions                  a schema to write with: its id, the same one each time

The schema of an id never changes, so the client keeps it. While the registry is away, and for PATIENCE_SECONDS after
it did not know an id (its nodes may not have heard of it yet), `RegistryAway` is raised. After these seconds the id
counts as not registered; it is asked for again every FORGET_SECONDS.
"""

from __future__ import annotations

import base64
import json
import ssl
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from time import monotonic
from typing import Any
from urllib.parse import quote, urlsplit

from tidemark_replica.storage.errors import IngestionError
from tidemark_replica.storage.timed_answer import answer_of

REQUEST_SECONDS, QUESTION_SECONDS = 2.0, 10.0
"""The time that a request may take, and a schema with all those that it refers to."""
PATIENCE_SECONDS = 30.0
PAUSE_SECONDS = 2.0
"""The time for which nothing is asked after the registry was away."""
ANSWER_BYTES_MAX = 4 << 20
FORGET_SECONDS = 600.0
"""The time for which an id that is not registered is not asked for again."""
KEPT_MAX, KEPT_LENGTH_MAX = 1000, 64 << 20
"""Schemas that are kept, and characters of all of them."""
MISSING_MAX, REFERENCES_MAX = 20_000, 64
SECRET_KEYS = frozenset({"username", "password", "token", "ca.crt"})
_NOT_FOUND = (40401, 40402, 40403)
"""Codes with which a registry says that it has no such subject, version or schema. Other answers of status 404 come
from something else in its place."""
_REFUSED = (409, 422)
"""A schema that does not go with the subject's earlier versions, or that the registry takes for none."""
_ANSWERS = (200, 404, *_REFUSED)
MESSAGE_LENGTH = 300
_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"


class RegistryAway(IngestionError):
    """The registry does not answer, or not as one; what needs it waits. The message says why."""


class NotRegistered(IngestionError):
    """The registry has no such schema."""


class NotTaken(IngestionError):
    """The registry refuses to register a schema. The message has its answer."""


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema. `kind`: AVRO, PROTOBUF or JSON. `text`: Protobuf's is a FileDescriptorProto in base64. `imports`: the
    schemas that it refers to, by the names that it has for them."""

    kind: str
    text: str
    imports: tuple[tuple[str, str], ...] = ()

    @property
    def length(self) -> int:
        """Characters of all texts."""
        return len(self.text) + sum(len(name) + len(text) for name, text in self.imports)


@dataclass(frozen=True)
class _Missing:
    """An id that the registry does not know: the times of the first and of the last question, and whether it has been
    unknown for long enough."""

    first: float
    last: float
    is_sure: bool


class SchemaRegistry:
    """The registry at `url`; used by one thread. `read_secret` gives the Secret's data anew for each request; None: it
    needs none."""

    def __init__(self, url: str, read_secret: Callable[[], Mapping[str, str]] | None) -> None:
        self._url, self._read_secret = urlsplit(url), read_secret
        self._kept: OrderedDict[int, RegisteredSchema] = OrderedDict()
        self._kept_length = 0
        self._missing: OrderedDict[int, _Missing] = OrderedDict()
        self._paused_until, self._why = 0.0, ""

    def by_id(self, id: int) -> RegisteredSchema:
        """The schema with the id. Raises RegistryAway, NotRegistered."""
        if id in self._kept:
            self._kept.move_to_end(id)
            return self._kept[id]
        missing = self._missing.get(id)
        if missing is not None and missing.is_sure and monotonic() - missing.last < FORGET_SECONDS:
            raise NotRegistered(f"the registry has no schema {id}")
        asked = monotonic()
        try:
            found = self._schema(f"/schemas/ids/{id}", asked + QUESTION_SECONDS)
        except NotRegistered:
            self._not_there(id, asked, missing)
            raise
        self._missing.pop(id, None)
        self._keep(id, found)
        return found

    def asked_at(self, id: int) -> float:
        """The time of the last question for an id that the registry did not know; 0 for others."""
        return self._missing[id].last if id in self._missing else 0.0

    def _keep(self, id: int, found: RegisteredSchema) -> None:
        self._kept[id] = found
        self._kept_length += found.length
        while len(self._kept) > 1 and (len(self._kept) > KEPT_MAX or self._kept_length > KEPT_LENGTH_MAX):
            self._kept_length -= self._kept.popitem(last=False)[1].length

    def by_subject(self, subject: str, version: int) -> RegisteredSchema:
        """A version of a subject; 0 is the newest. Raises RegistryAway, NotRegistered."""
        versions, deadline = f"/subjects/{quote(subject, safe='')}/versions", monotonic() + QUESTION_SECONDS
        if not version:
            newest = self._get(f"{versions}/latest", deadline).get("version")
            if not isinstance(newest, int):
                raise self._pause("the answer is not a registry's")
            version = newest
        return self._schema(f"{versions}/{version}", deadline)

    def register(self, subject: str, text: str) -> int:
        """The id of a schema of Avro, which is the subject's newest version from then on, if it is none of its versions
        yet. Raises RegistryAway, NotTaken."""
        body = json.dumps({"schema": text}).encode()
        status, found = self._answer(f"/subjects/{quote(subject, safe='')}/versions", QUESTION_SECONDS, body)
        if status in _REFUSED:
            raise NotTaken(
                f"{self._address} answers with status {status}: {str(found.get('message'))[:MESSAGE_LENGTH]!a}"
            )
        id = found.get("id")
        if status != 200 or not isinstance(id, int) or isinstance(id, bool) or not 0 <= id < 1 << 31:
            raise self._pause(f"it answers with status {status}, and no id of a schema")
        return id

    def _not_there(self, id: int, asked: float, before: _Missing | None) -> None:
        """Notes that it did not know the id at the time `asked`. Raises RegistryAway until that is so for long
        enough; then it stays so."""
        first = asked if before is None else before.first
        is_sure = monotonic() - first >= PATIENCE_SECONDS or (before is not None and before.is_sure)
        self._missing[id] = _Missing(first, asked, is_sure)
        while len(self._missing) > MISSING_MAX:
            self._missing.popitem(last=False)
        if not is_sure:
            raise RegistryAway(f"{self._address}: there is no schema {id} (yet)") from None

    def _schema(self, path: str, deadline: float) -> RegisteredSchema:
        """The schema at the path. Raises RegistryAway, NotRegistered."""
        answer = self._get(path, deadline)
        kind = answer.get("schemaType", "AVRO")
        if kind == "PROTOBUF":
            answer = {**answer, **self._get(path, deadline, serialized=True)}
        text = answer.get("schema")
        if not isinstance(text, str) or not isinstance(kind, str):
            raise self._pause("the answer is not a registry's")
        imports: dict[str, str] = {}
        self._follow(answer.get("references"), kind, imports, deadline)
        return RegisteredSchema(kind, text, tuple(imports.items()))

    def _follow(self, references: Any, kind: str, found: dict[str, str], deadline: float) -> None:
        """Gets the schemas that are referred to, those first that others need."""
        if not isinstance(references, list | None):
            raise self._pause("the answer's references are not a registry's")
        for each in references or []:
            version = each.get("version") if isinstance(each, dict) else None
            if not isinstance(version, int) or not all(_is_text(each.get(key)) for key in ("name", "subject")):
                raise self._pause("the answer's references are not a registry's")
            if each["name"] in found:
                continue
            if len(found) >= REFERENCES_MAX:
                raise NotRegistered(f"the schema refers to more than {REFERENCES_MAX} others")
            found[each["name"]] = ""
            path = f"/subjects/{quote(each['subject'], safe='')}/versions/{version}"
            answer = self._get(path, deadline, serialized=kind == "PROTOBUF")
            self._follow(answer.get("references"), kind, found, deadline)
            del found[each["name"]]
            found[each["name"]] = str(answer.get("schema"))

    @property
    def _address(self) -> str:
        """The registry and its host, for messages."""
        return f"the registry at {self._url.hostname}"

    def _pause(self, why: str) -> RegistryAway:
        self._paused_until, self._why = monotonic() + PAUSE_SECONDS, f"{self._address}: {why}"
        return RegistryAway(self._why)

    def _get(self, path: str, deadline: float, serialized: bool = False) -> dict[str, Any]:
        """The JSON object that is answered before the deadline. Raises RegistryAway, NotRegistered."""
        seconds = min(REQUEST_SECONDS, deadline - monotonic())
        if seconds <= 0:
            raise self._pause(f"a schema and those it refers to did not come within {QUESTION_SECONDS:g} s")
        status, found = self._answer(path + ("?format=serialized" if serialized else ""), seconds)
        if status == 404 and found.get("error_code") in _NOT_FOUND:
            raise NotRegistered(f"{self._address} has no {path}")
        if status != 200:
            raise self._pause(f"it answers with status {status}, and no schema")
        return found

    def _answer(self, path: str, seconds: float, body: bytes | None = None) -> tuple[int, dict[str, Any]]:
        """The status, and the JSON object that is answered within the seconds. `body`: of a POST. Raises
        RegistryAway."""
        if monotonic() < self._paused_until:
            raise RegistryAway(self._why)
        secret = self._secret()
        end = monotonic() + seconds
        connection = self._connection(secret, seconds)
        method = "GET" if body is None else "POST"
        try:
            connection.request(method, self._url.path.rstrip("/") + path, body, _headers(secret, body is not None))
            answer = answer_of(connection.sock, end)
            data = _content(answer)
        except (OSError, HTTPException, ValueError) as error:
            # other errors' texts may quote headers
            text = f": {error}" if isinstance(error, OSError) else ""
            raise self._pause(f"{type(error).__name__}{text}"[:200]) from None
        finally:
            connection.close()
        if answer.status in (401, 403):
            raise self._pause(f"it refuses the credentials (status {answer.status})")
        try:
            found = json.loads(data) if answer.status in _ANSWERS else None
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise self._pause(f"it answers with status {answer.status}, and no schema")
        return answer.status, found

    def _secret(self) -> Mapping[str, str]:
        try:
            secret = dict(self._read_secret()) if self._read_secret is not None else {}
        except IngestionError as error:
            raise RegistryAway(f"{self._address}: {error}") from None
        if unknown := sorted(secret.keys() - SECRET_KEYS):
            known = ", ".join(sorted(SECRET_KEYS))
            raise RegistryAway(
                f"the registry's Secret: keys {', '.join(unknown)} are not taken (known: {known}); remove them"
            )
        return secret

    def _connection(self, secret: Mapping[str, str], seconds: float) -> HTTPConnection:
        host = self._url.hostname or ""
        if self._url.scheme == "http":
            return HTTPConnection(host, self._url.port, timeout=seconds)
        try:
            context = ssl.create_default_context(cadata=secret.get("ca.crt"))
        except (ssl.SSLError, ValueError):
            raise RegistryAway("the registry's Secret: ca.crt is not a PEM certificate; correct it") from None
        return HTTPSConnection(host, self._url.port, timeout=seconds, context=context)


def _headers(secret: Mapping[str, str], has_body: bool) -> dict[str, str]:
    headers = {"Accept": _ACCEPT, "User-Agent": "tidemark", "Connection": "close"}
    if has_body:
        headers["Content-Type"] = "application/vnd.schemaregistry.v1+json"
    if "token" in secret:
        return headers | {"Authorization": f"Bearer {secret['token']}"}
    if "username" in secret:
        pair = f"{secret['username']}:{secret.get('password', '')}".encode()
        return headers | {"Authorization": "Basic " + base64.b64encode(pair).decode()}
    return headers


def _is_text(value: Any) -> bool:
    """Whether it is a text that can be part of an address: JSON may have half of a pair of surrogates."""
    return isinstance(value, str) and not any("\ud800" <= character <= "\udfff" for character in value)


def _content(answer: HTTPResponse) -> bytes:
    """The body. Raises ValueError where it is too large, TimeoutError where it comes too slowly."""
    pieces, size = [], 0
    while piece := answer.read1(1 << 16):
        pieces.append(piece)
        size += len(piece)
        if size > ANSWER_BYTES_MAX:
            raise ValueError(f"the answer is larger than {ANSWER_BYTES_MAX} bytes")
    return b"".join(pieces)
