"""A thin asynchronous client of the API server; objects are dicts.

It uses the official client's asyncio flavour (docs/decisions/0008-operator.md): requests do not block the event loop
and end with their task, and credentials come from the same places as kubectl's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from json import JSONDecodeError
from pathlib import Path
from typing import Any
from urllib.parse import quote

from aiohttp import ClientError
from kubernetes.aio import client, config

from tidemark_operator.errors import OperatorError
from tidemark_operator.resources.manifest import data_source, dataflow, instance, replica
from tidemark_operator.resources.manifest.meta import GROUP, VERSION

LOG = logging.getLogger(__name__)
JSON, MERGE_PATCH, APPLY_PATCH = (
    "application/json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
)
FIELD_MANAGER = "tidemark-operator"
REQUEST_SECONDS = 15.0
AGAIN_SECONDS = 1.0
PAGE = 500
Body = dict[str, Any]
Query = Mapping[str, str]


@dataclass(frozen=True)
class Resource:
    """A kind of namespaced object, and its API group, version and plural."""

    group: str
    version: str
    plural: str
    kind: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", below: str = "") -> str:
        """The URL path of an object, of its subresource `below`, or of all objects (`namespace` empty: of all
        namespaces)."""
        root = f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"
        words = (*(("namespaces", namespace) if namespace else ()), self.plural, name, below)
        return "/".join((root, *(quote(word, safe="") for word in words if word)))


INSTANCES = Resource(GROUP, VERSION, instance.PLURAL, instance.KIND)
REPLICAS = Resource(GROUP, VERSION, replica.PLURAL, replica.KIND)
DATA_SOURCES = Resource(GROUP, VERSION, data_source.PLURAL, data_source.KIND)
DATAFLOWS = Resource(GROUP, VERSION, dataflow.PLURAL, dataflow.KIND)
OURS = (INSTANCES, REPLICAS, DATA_SOURCES, DATAFLOWS)
REVISIONS = Resource("apps", "v1", "controllerrevisions", "ControllerRevision")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
EVENTS = Resource("events.k8s.io", "v1", "events", "Event")
SECRETS = Resource("", "v1", "secrets", "Secret")
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")


class ApiError(OperatorError):
    """The API server refused a request (`status`: the HTTP status), or did not answer (0)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status

    @property
    def is_transient(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status in (0, 409, 410, 429) or self.status >= 500

    @property
    def namespace_ends(self) -> bool:
        """Whether the request was refused because the namespace is being deleted."""
        return self.status == 403 and "NamespaceTerminating" in str(self)


class Conflict(ApiError):
    """Another writer changed the object, or it exists already."""


class Invalid(ApiError):
    """The API server will never accept the request."""


class Kube:
    """One connection pool; open it with `connect`. Methods raise ApiError."""

    def __init__(self, api: client.ApiClient, namespaces: tuple[str, ...] = ()) -> None:
        self.api, self.namespaces = api, namespaces
        self._patient = False
        self.fence: Callable[[], None] = lambda: None
        """A check before every write except a Lease's; it raises ApiError where this process must not write."""

    @staticmethod
    @asynccontextmanager
    async def connect(kubeconfig: Path | None, namespaces: tuple[str, ...] = ()) -> AsyncIterator[Kube]:
        """Open a client.

        `kubeconfig` None: use the pod's service account. `namespaces`: the ones to list; empty: all.

        Raises:
            OperatorError: the kubeconfig or service account cannot be read.
        """
        configuration = client.Configuration()
        try:
            if kubeconfig is None:
                config.load_incluster_config(client_configuration=configuration)
            else:
                await config.load_kube_config(str(kubeconfig), client_configuration=configuration, persist_config=False)
        except config.ConfigException as error:
            where = kubeconfig or "the pod's service account (no --kubeconfig was given)"
            raise OperatorError(f"cannot read {where}: {error}") from None
        # as in kopf: otherwise each request reads the proxy settings of the environment in a thread
        configuration.client_session_kwargs = {"trust_env": False}
        async with client.ApiClient(configuration) as api:
            yield Kube(api, namespaces)

    @contextmanager
    def patient(self) -> Iterator[None]:
        """Repeat reads within the block until the API server answers or refuses."""
        self._patient = True
        try:
            yield
        finally:
            self._patient = False

    async def get(self, resource: Resource, namespace: str, name: str) -> Body | None:
        """The object; None if it does not exist."""
        try:
            return await self._read(resource, namespace, name)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def list(self, resource: Resource, labels: str = "", namespace: str = "", fields: str = "") -> list[Body]:
        """All objects of `namespace`, or of every namespace that this operator serves; read page by page."""
        bodies: list[Body] = []
        for place in (namespace,) if namespace else self.namespaces or ("",):
            bodies += await all_pages(partial(self._page, resource, place, labels, fields))
        # the items of a list have no apiVersion and kind
        kind = {"apiVersion": resource.api_version, "kind": resource.kind}
        return [{**kind, **item} for item in bodies]

    async def create(self, resource: Resource, namespace: str, body: Body) -> Body:
        """Create the object; raises Conflict if it exists."""
        full = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        return await self._write("POST", resource, namespace, body=full)

    async def review(self, resource: Resource, spec: Body) -> Body:
        """Create a review, which is not stored; return its status."""
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
        status: Body = (await self._ask("POST", resource.path(), body=body)).get("status") or {}
        return status

    async def check(self) -> None:
        """Raise ApiError where another server answers than an API server."""
        if "gitVersion" not in await self._ask("GET", "/version"):
            raise ApiError(0, "the server at this address is not an API server")

    async def client_authority(self) -> str | None:
        """The authority (PEM) of the cluster's client certificates; None: the API server accepts none."""
        found = await self.get(CONFIG_MAPS, "kube-system", "extension-apiserver-authentication")
        authority: str | None = ((found or {}).get("data") or {}).get("client-ca-file")
        return authority

    async def replace(self, resource: Resource, namespace: str, name: str, body: Body) -> Body:
        """Replace the object; raises Conflict if it changed since `body` was read."""
        return await self._write("PUT", resource, namespace, name, body=body)

    async def apply(self, resource: Resource, body: Body) -> Body:
        """Create or update the object (server-side apply), overwriting others' changes to our fields. Fields that we do
        not name stay as they are."""
        metadata, query = body["metadata"], {"fieldManager": FIELD_MANAGER, "force": "true"}
        return await self._write(
            "PATCH", resource, metadata["namespace"], metadata["name"], body=body, kind=APPLY_PATCH, query=query
        )

    async def patch(self, resource: Resource, namespace: str, name: str, patch: Body) -> Body:
        """Apply a JSON merge patch to everything but status. With metadata.resourceVersion: Conflict if the object
        changed."""
        return await self._write("PATCH", resource, namespace, name, body=patch, kind=MERGE_PATCH)

    async def patch_status(self, resource: Resource, namespace: str, name: str, patch: Body) -> Body:
        """Apply a JSON merge patch to status. With metadata.resourceVersion: Conflict if the object changed."""
        return await self._write("PATCH", resource, namespace, name, "status", body=patch, kind=MERGE_PATCH)

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        uid: str,
        propagation: str | None = None,
        version: str | None = None,
    ) -> None:
        """Delete the object of this uid, if it still exists. `version`: its resourceVersion; Conflict where it changed.
        `propagation`: `Foreground` deletes it after everything
        that it owns."""
        preconditions = {"uid": uid, **({"resourceVersion": version} if version else {})}
        options: Body = {
            "preconditions": preconditions,
            **({"propagationPolicy": propagation} if propagation else {}),
        }
        try:
            await self._write("DELETE", resource, namespace, name, body=options)
        except Conflict:
            # the object has another uid, or changed; only the former means that ours is gone
            there = await self.get(resource, namespace, name)
            if there is not None and there["metadata"]["uid"] == uid:
                raise
        except ApiError as error:
            if error.status != 404:
                raise

    async def _page(self, resource: Resource, namespace: str, labels: str, fields: str, token: str | None) -> Body:
        asked = {"limit": str(PAGE), "labelSelector": labels, "fieldSelector": fields, "continue": token or ""}
        return await self._read(resource, namespace, query={name: text for name, text in asked.items() if text})

    async def _read(self, resource: Resource, namespace: str, name: str = "", query: Query | None = None) -> Body:
        while True:
            try:
                return await self._ask_about("GET", resource, namespace, name, query=query)
            except ApiError as error:
                too_old = error.status == 410 and query and query.get("continue")
                if not self._patient or not error.is_transient or too_old:
                    raise
                LOG.warning("retrying a read: %s", error)
            await asyncio.sleep(AGAIN_SECONDS)

    async def _write(self, method: str, resource: Resource, *place: str, **request: Any) -> Body:
        if resource != LEASES:
            self.fence()
        return await self._ask_about(method, resource, *place, **request)

    async def _ask_about(self, method: str, resource: Resource, namespace: str, *place: str, **request: Any) -> Body:
        """Ask about an object, or all of a namespace. An error about a Secret keeps the status line only: the API
        server's text may repeat the Secret's content."""
        try:
            return await self._ask(method, resource.path(namespace, *place), **request)
        except ApiError as error:
            if resource != SECRETS:
                raise
            reason = str(error).partition(":")[0] if error.status else str(error)
            name = place[0] if place and place[0] else ((request.get("body") or {}).get("metadata") or {}).get("name")
            raise type(error)(error.status, f"Secret {namespace}/{name}: {reason}") from None

    async def _ask(
        self, method: str, path: str, *, body: Body | None = None, kind: str = JSON, query: Query | None = None
    ) -> Body:
        """One request; raises ApiError for every failure. The client's calls for objects of any kind require an API
        group, which the core kinds lack, so paths are built here."""
        headers, parameters = {"Accept": JSON, "Content-Type": kind}, list((query or {}).items())
        try:
            made = await self.api.param_serialize(
                method, path, query_params=parameters, header_params=headers, body=body, auth_settings=["BearerToken"]
            )
            answer = await self.api.call_api(*made, _request_timeout=REQUEST_SECONDS)
            await answer.read()
            types = dict.fromkeys(("200", "201", "202"), "object")
            found: Body = self.api.response_deserialize(response_data=answer, response_types_map=types).data
            return found
        except client.ApiException as error:
            raise _error(error.status or 0, _message(error)) from None
        except (OSError, TimeoutError, ClientError) as error:
            raise ApiError(0, f"the API server does not answer: {error}") from None
        except JSONDecodeError as error:
            raise ApiError(0, f"the server at this address is not an API server: {error}") from None


async def all_pages(ask: Callable[[str | None], Awaitable[Body]]) -> list[Body]:
    """All items of a list. `ask`: requests the page of a continue token.

    A list whose token has expired (410) begins again, the second time after a pause.
    """
    items: list[Body] = []
    token, pause = None, 0.0
    while True:
        try:
            page = await ask(token)
        except ApiError as error:
            if token is None or error.status != 410:
                raise
            LOG.warning("a list expired and begins again: %s", error)
            await asyncio.sleep(pause)
            items, token, pause = [], None, AGAIN_SECONDS
            continue
        items += page.get("items") or []
        token = page.get("metadata", {}).get("continue")
        if not token:
            return items


def _error(status: int, message: str) -> ApiError:
    kinds: Mapping[int, type[ApiError]] = {409: Conflict, 422: Invalid, 400: Invalid}
    return kinds.get(status, ApiError)(status, message)


def _message(error: Any) -> str:
    """Status and body of the API server's answer, without headers, which may hold credentials."""
    return f"{error.status} {error.reason}: {str(error.body or '')[:1000]}"
