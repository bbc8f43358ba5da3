"""Objects of other people's kinds, the core's among them: what pods are made of.

    apply ── server-side, as our field manager: what we do not name stays others', what we name is ours

The client's call for objects of any kind knows of groups alone, and the core has none; so the paths are made here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any
from urllib.parse import quote

from tidemark_operator.kube.client import PAGE, ApiError, Body, Conflict, Kube, Resource, all_pages, called

FIELD_MANAGER = "tidemark-operator"
APPLY_PATCH = "application/apply-patch+yaml"

PODS = Resource("", "v1", "pods", "Pod")
SERVICES = Resource("", "v1", "services", "Service")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet")
DISRUPTION_BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
MADE = (STATEFUL_SETS, SERVICES, CONFIG_MAPS, DISRUPTION_BUDGETS)
Query = Sequence[tuple[str, str]]


class Objects:
    """At the API server; every method raises ApiError."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def apply(self, body: Body, dry_run: bool = False) -> Body:
        """Makes the object, or makes it so; what others changed of ours is ours again."""
        query = [("fieldManager", FIELD_MANAGER), ("force", "true"), *([("dryRun", "All")] if dry_run else [])]
        resource, metadata = resource_of(body), body["metadata"]
        path = f"{_folder(resource, metadata['namespace'])}/{quote(metadata['name'], safe='')}"
        return await self._ask("PATCH", path, query, body, APPLY_PATCH)

    async def list(self, resource: Resource, labels: str = "", fields: str = "", namespace: str = "") -> list[Body]:
        """Of all namespaces that this operator looks after, or of one; page by page."""
        found: list[Body] = []
        for place in (namespace,) if namespace else self._kube.namespaces or ("",):
            found += await all_pages(partial(self._page, resource, place, labels, fields))
        return found

    async def _page(self, resource: Resource, namespace: str, labels: str, fields: str, token: str | None) -> Body:
        asked = {"limit": str(PAGE), "labelSelector": labels, "fieldSelector": fields, "continue": token or ""}
        return await self._ask("GET", _folder(resource, namespace), [each for each in asked.items() if each[1]])

    async def changes(
        self, resource: Resource, namespace: str, labels: str, fields: str, since: str, seconds: int
    ) -> tuple[Sequence[Body], str]:
        """Objects that come to be as asked within so many seconds, also such as are gone by then, and where to go on.
        With `since` empty: those that are now."""
        query = [("labelSelector", labels), ("fieldSelector", fields)]
        if not since:
            page = await self._ask("GET", _folder(resource, namespace), query)
            return page.get("items") or [], page["metadata"]["resourceVersion"]
        query += [("watch", "true"), ("resourceVersion", since), ("timeoutSeconds", str(seconds))]
        query.append(("allowWatchBookmarks", "true"))
        events = await self._events(_folder(resource, namespace), query)
        for event in events:
            if event["type"] == "ERROR":  # of an object of another kind: what went wrong
                raise ApiError(int(event["object"].get("code") or 0), str(event["object"].get("message")))
            since = event["object"]["metadata"]["resourceVersion"]
        return [event["object"] for event in events if event["type"] in ("ADDED", "MODIFIED")], since

    async def delete(self, resource: Resource, body: Body) -> None:
        """Of this very object, and before it is gone all that it owns; one that is gone already is fine."""
        metadata = body["metadata"]
        path = f"{_folder(resource, metadata['namespace'])}/{quote(metadata['name'], safe='')}"
        options = {"preconditions": {"uid": metadata["uid"]}, "propagationPolicy": "Foreground"}
        try:
            await self._ask("DELETE", path, [], options)
        except ApiError as error:
            if error.status != 404 and not isinstance(error, Conflict):
                raise

    async def _ask(
        self, method: str, path: str, query: Query, body: Any = None, content_type: str = "application/json"
    ) -> Body:
        if method != "GET":
            self._kube.fence()
        answer: Body = await called(
            _request, api=self._kube.api, method=method, path=path, query=query, body=body, kind=content_type
        )
        return answer

    async def _events(self, path: str, query: Query) -> Sequence[Body]:
        """Of a watch, once the API server has ended it: one a line."""
        asked = {"method": "GET", "path": path, "query": query, "body": None}
        said: bytes = await called(_request, api=self._kube.api, **asked, form="bytes")
        try:
            return [json.loads(line) for line in said.splitlines()]
        except ValueError:
            raise ApiError(0, "the API server's watch ended within an event") from None


async def _request(
    *,
    api: Any,
    method: str,
    path: str,
    query: Query,
    body: Any,
    kind: str = "application/json",
    form: str = "object",
    _request_timeout: float,
) -> Any:
    headers = {"Accept": "application/json", "Content-Type": kind}
    made = await api.param_serialize(
        method, path, query_params=list(query), header_params=headers, body=body, auth_settings=["BearerToken"]
    )
    answer = await api.call_api(*made, _request_timeout=_request_timeout)
    await answer.read()
    types = dict.fromkeys(("200", "201", "202"), form)
    return api.response_deserialize(response_data=answer, response_types_map=types).data


def resource_of(body: Body) -> Resource:
    """One of those that we make; KeyError for any other."""
    return {(each.api_version, each.kind): each for each in MADE}[body["apiVersion"], body["kind"]]


def _folder(resource: Resource, namespace: str) -> str:
    root = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.version}"
    place = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"{root}{place}/{resource.plural}"
