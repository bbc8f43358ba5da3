"""A registry of schemas over real HTTP(S), with as much of Confluent's REST interface as sources and sinks use."""

from __future__ import annotations

import base64
import json
import re
import ssl
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tidemark_replica.storage.avro.resolution import BodyDecoder, Incompatible
from tidemark_replica.storage.avro.schema import parse_schema

APICURIO = "/base/apis/registry/v2"
"""Where the registry takes schemas as Apicurio's does."""


@dataclass
class Registry:
    """Schemas by id and by subject. `password`: what it asks for; `status`: what it answers instead, if not 0.
    `compatibility`: of schemas that clients register, BACKWARD or NONE."""

    url: str = ""
    password: str = ""
    token: str = ""
    status: int = 0
    compatibility: str = "BACKWARD"
    requests: list[str] = field(default_factory=list)
    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    subjects: dict[str, list[int]] = field(default_factory=dict)

    def register(
        self,
        subject: str,
        schema: Any,
        kind: str = "AVRO",
        references: list[Mapping[str, Any]] | None = None,
        id: int | None = None,
    ) -> int:
        """The id of a new version of the subject. `schema`: a text, else it is written as JSON. A registry gives
        Protobuf in base64 where it is asked for, and so is it given here."""
        id = id if id is not None else len(self.schemas) + 1
        text = schema if isinstance(schema, str) else json.dumps(schema)
        self.schemas[id] = {"schema": text, "references": references or []}
        if kind != "AVRO":
            self.schemas[id]["schemaType"] = kind
        self.subjects.setdefault(subject, []).append(id)
        return id

    def take(self, path: str, headers: Any, body: bytes) -> tuple[int, Any]:
        """The answer to a POST: a schema that a client registers."""
        self.requests.append(f"POST {path}")
        if self.status:
            return self.status, {"error_code": self.status, "message": "as the test has it"}
        if not self._is_allowed(headers.get("Authorization", "")):
            return 401, {"error_code": 40101}
        if re.match(APICURIO + "/groups/default/artifacts", path):
            return self._take_artifact(headers["X-Registry-ArtifactId"], body.decode())
        found = re.fullmatch(r"/base/subjects/([^/]+)/versions", path)
        if found is None or headers["Content-Type"] != "application/vnd.schemaregistry.v1+json":
            return 404, {}
        subject, text = found[1], json.loads(body)["schema"]
        ids = self.subjects.get(subject, [])
        if any(self.schemas[id]["schema"] == text for id in ids):
            return 200, {"id": next(id for id in ids if self.schemas[id]["schema"] == text)}
        if ids and self.compatibility == "BACKWARD":
            try:
                BodyDecoder(parse_schema(self.schemas[ids[-1]]["schema"]), parse_schema(text))
            except Incompatible as error:
                return 409, {"error_code": 409, "message": f"incompatible with an earlier schema: {error}"}
        return 200, {"id": self.register(subject, text)}

    def _take_artifact(self, subject: str, text: str) -> tuple[int, Any]:
        """A schema that Apicurio's client registers."""
        ids = self.subjects.get(subject, [])
        id = next((id for id in ids if self.schemas[id]["schema"] == text), None) or self.register(subject, text)
        at = dict.fromkeys(("createdOn", "modifiedOn"), "2026-01-01T00:00:00Z")
        found = {"id": subject, "version": "1", "globalId": id, "contentId": id, "type": "AVRO", "state": "ENABLED"}
        return 200, found | at

    def answer(self, path: str, headers: Any) -> tuple[int, Any]:
        self.requests.append(path)
        if self.status:
            return self.status, {"error_code": self.status}
        if not self._is_allowed(headers.get("Authorization", "")):
            return 401, {"error_code": 40101}
        path, _, query = path.partition("?")
        if found := re.fullmatch(r"/base/schemas/ids/(\d+)", path):
            return self._schema(int(found[1]), query)
        if found := re.fullmatch(r"/base/subjects/([^/]+)/versions/(\d+|latest)", path):
            ids = self.subjects.get(found[1], [])
            version = len(ids) if found[2] == "latest" else int(found[2])
            if not 0 < version <= len(ids):
                return 404, {"error_code": 40401}
            status, schema = self._schema(ids[version - 1], query)
            return status, {**schema, "subject": found[1], "version": version, "id": ids[version - 1]}
        return 404, {}

    def _schema(self, id: int, query: str) -> tuple[int, Any]:
        if id not in self.schemas:
            return 404, {"error_code": 40403}
        schema = dict(self.schemas[id])
        if schema.get("schemaType") == "PROTOBUF" and query != "format=serialized":
            schema["schema"] = 'syntax = "proto3"; // the text, which nobody parses here'
        return 200, schema

    def _is_allowed(self, given: str) -> bool:
        if self.token:
            return given == f"Bearer {self.token}"
        basic = "Basic " + base64.b64encode(f"user:{self.password}".encode()).decode()
        return not self.password or given == basic


def framed(id: int, body: bytes) -> bytes:
    """The body with the frame of the schema with this id."""
    return struct.pack(">bI", 0, id) + body


@contextmanager
def registry(certificate: tuple[str, str] | None = None) -> Iterator[Registry]:
    """A server on a port of its own. `certificate`: files of a certificate and its key, for HTTPS."""
    one = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(*one.answer(self.path, self.headers))

        def do_POST(self) -> None:
            given = self.rfile.read(int(self.headers["Content-Length"]))
            self._answer(*one.take(self.path, self.headers, given))

        def _answer(self, status: int, body: Any) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            if status in (301, 302):
                self.send_header("Location", one.url + "/elsewhere")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    one.url = f"{'https' if certificate else 'http'}://127.0.0.1:{server.server_port}/base"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield one
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
