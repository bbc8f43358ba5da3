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

from aiohttp import ClientError
from kubernetes.aio import client, config

from tidemark_operator.errors import OperatorError
from tidemark_operator.resources.manifest import data_source, dataflow, instance, replica
from tidemark_operator.resources.manifest.meta import GROUP, VERSION

LOG = logging.getLogger(__name__)
MERGE_PATCH = "application/merge-patch+json"
REQUEST_SECONDS = 15.0
AGAIN_SECONDS = 1.0
PAGE = 500
Body = dict[str, Any]


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


INSTANCES = Resource(GROUP, VERSION, instance.PLURAL, instance.KIND)
REPLICAS = Resource(GROUP, VERSION, replica.PLURAL, replica.KIND)
DATA_SOURCES = Resource(GROUP, VERSION, data_source.PLURAL, data_source.KIND)
DATAFLOWS = Resource(GROUP, VERSION, dataflow.PLURAL, dataflow.KIND)
OURS = (INSTANCES, REPLICAS, DATA_SOURCES, DATAFLOWS)
REVISIONS = Resource("apps", "v1", "controllerrevisions", "ControllerRevision")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
EVENTS = Resource("events.k8s.io", "v1", "events", "Event")


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
        self._objects, self._core = client.CustomObjectsApi(api), client.CoreV1Api(api)
        self._version = client.VersionApi(api)
        self.api, self.namespaces = api, namespaces
        self._patient = False
        self.fence: Callable[[], None] = _nothing
        """Called before every write except a Lease's; raises ApiError where this process must not write."""

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
        """The object; None: it does not exist."""
        call = self._objects.get_namespaced_custom_object
        try:
            return await self._read(call, **_place(resource, namespace), name=name)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def list(self, resource: Resource, label_selector: str | None = None, namespace: str = "") -> list[Body]:
        """All objects of `namespace`, or of every namespace that this operator serves; read page by page."""
        bodies: list[Body] = []
        for place in (namespace,) if namespace else self.namespaces or ("",):
            bodies += await all_pages(partial(self._page, resource, place, label_selector))
        # the items of a list have no apiVersion and kind
        kind = {"apiVersion": resource.api_version, "kind": resource.kind}
        return [{**kind, **item} for item in bodies]

    async def create(self, resource: Resource, namespace: str, body: Body) -> Body:
        """Create the object; raises Conflict if it exists."""
        self._writes(resource)
        full = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        call = self._objects.create_namespaced_custom_object
        return await _call(call, **_place(resource, namespace), body=full)

    async def review(self, group: str, plural: str, kind: str, spec: Body) -> Body:
        """Create a review, which is not stored; return its status."""
        body = {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec}
        call = self._objects.create_cluster_custom_object
        answer = await _call(call, group=group, version="v1", plural=plural, body=body)
        status: Body = answer.get("status") or {}
        return status

    async def version(self) -> str:
        """The API server's version; raises ApiError where another server answers."""
        found = await called(self._version.get_code)
        version: str = found.git_version
        return version

    async def client_authority(self) -> str | None:
        """The authority (PEM) of the cluster's client certificates; None: the API server accepts none."""
        place = {"namespace": "kube-system", "name": "extension-apiserver-authentication"}
        try:
            found = await called(self._core.read_namespaced_config_map, **place)
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        authority: str | None = (found.data or {}).get("client-ca-file")
        return authority

    async def get_secret(self, namespace: str, name: str) -> Body | None:
        """The object; None: it does not exist."""
        try:
            return await self._secret(self._core.read_namespaced_secret, namespace, name=name)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def create_secret(self, namespace: str, body: Body) -> Body:
        """Create the object; raises Conflict if it exists."""
        self.fence()
        return await self._secret(self._core.create_namespaced_secret, namespace, body=body)

    async def replace_secret(self, namespace: str, name: str, body: Body) -> Body:
        """Replace the object; raises Conflict if it changed since `body` was read."""
        self.fence()
        return await self._secret(self._core.replace_namespaced_secret, namespace, name=name, body=body)

    async def _secret(self, call: Any, namespace: str, **arguments: Any) -> Body:
        """Call for a Secret. An error keeps the status line only: the API server's text may repeat the Secret's
        content."""
        try:
            found = await called(call, namespace=namespace, **arguments)
        except ApiError as error:
            reason = str(error).partition(":")[0] if error.status else str(error)
            name = arguments.get("name") or arguments["body"]["metadata"]["name"]
            raise type(error)(error.status, f"Secret {namespace}/{name}: {reason}") from None
        body: Body = self._core.api_client.sanitize_for_serialization(found)
        return body

    async def replace(self, resource: Resource, namespace: str, name: str, body: Body) -> Body:
        """Replace the object; raises Conflict if it changed since `body` was read."""
        self._writes(resource)
        call = self._objects.replace_namespaced_custom_object
        return await _call(call, **_place(resource, namespace), name=name, body=body)

    async def patch(self, resource: Resource, namespace: str, name: str, patch: Body) -> Body:
        """Apply a JSON merge patch to everything but status. With metadata.resourceVersion: Conflict if the object
        changed."""
        self._writes(resource)
        call = self._objects.patch_namespaced_custom_object
        return await _call(call, **_place(resource, namespace), name=name, body=patch, _content_type=MERGE_PATCH)

    async def patch_status(self, resource: Resource, namespace: str, name: str, patch: Body) -> Body:
        """Apply a JSON merge patch to status. With metadata.resourceVersion: Conflict if the object changed."""
        self._writes(resource)
        call = self._objects.patch_namespaced_custom_object_status
        return await _call(call, **_place(resource, namespace), name=name, body=patch, _content_type=MERGE_PATCH)

    async def delete(self, resource: Resource, namespace: str, name: str, uid: str) -> None:
        """Delete the object of this uid, if it still exists."""
        self._writes(resource)
        call = self._objects.delete_namespaced_custom_object
        try:
            await _call(call, **_place(resource, namespace), name=name, body={"preconditions": {"uid": uid}})
        except Conflict:
            # the object has another uid, or changed; only the former means that ours is gone
            there = await self.get(resource, namespace, name)
            if there is not None and there["metadata"]["uid"] == uid:
                raise
        except ApiError as error:
            if error.status != 404:
                raise

    def _writes(self, resource: Resource) -> None:
        if resource != LEASES:
            self.fence()

    async def _page(self, resource: Resource, namespace: str, selector: str | None, token: str | None) -> Body:
        options: Body = {"limit": PAGE, "label_selector": selector, "_continue": token}
        if namespace:
            call = self._objects.list_namespaced_custom_object
            return await self._read(call, **_place(resource, namespace), **options)
        call = self._objects.list_custom_object_for_all_namespaces
        place = {"group": resource.group, "version": resource.version, "resource_plural": resource.plural}
        return await self._read(call, **place, **options)

    async def _read(self, call: Any, **arguments: Any) -> Body:
        while True:
            try:
                return await _call(call, **arguments)
            except ApiError as error:
                too_old = error.status == 410 and arguments.get("_continue")
                if not self._patient or not error.is_transient or too_old:
                    raise
                LOG.warning("retrying a read: %s", error)
            await asyncio.sleep(AGAIN_SECONDS)


def _nothing() -> None:
    """No fence."""


def _place(resource: Resource, namespace: str) -> dict[str, str]:
    return {
        "group": resource.group,
        "version": resource.version,
        "namespace": namespace,
        "plural": resource.plural,
    }


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


async def _call(call: Any, **arguments: Any) -> Body:
    result: Body = await called(call, **arguments)
    return result


async def called(call: Any, **arguments: Any) -> Any:
    """The answer of a call; raises ApiError for every failure."""
    try:
        return await call(**arguments, _request_timeout=REQUEST_SECONDS)
    except client.ApiException as error:
        raise _error(error.status or 0, _message(error)) from None
    except (OSError, TimeoutError, ClientError) as error:
        raise ApiError(0, f"the API server does not answer: {error}") from None
    except JSONDecodeError as error:
        raise ApiError(0, f"the server at this address is not an API server: {error}") from None


def _error(status: int, message: str) -> ApiError:
    kinds: Mapping[int, type[ApiError]] = {409: Conflict, 422: Invalid, 400: Invalid}
    return kinds.get(status, ApiError)(status, message)


def _message(error: Any) -> str:
    """Status and body of the API server's answer, without headers, which may hold credentials."""
    return f"{error.status} {error.reason}: {str(error.body or '')[:1000]}"
