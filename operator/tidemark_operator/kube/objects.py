"""Objects of Kubernetes' own kinds: StatefulSets, Services, Pods and what they need.

    apply ── server-side, with our field manager: fields that we name are ours, all others stay as they are

The client's call for objects of any kind requires an API group, which the core kinds lack, so this module builds paths.
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
    """Objects at the API server; every method raises ApiError."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def apply(self, body: Body, dry_run: bool = False) -> Body:
        """Create or update the object (server-side apply), overwriting others' changes to our fields."""
        query = [("fieldManager", FIELD_MANAGER), ("force", "true"), *([("dryRun", "All")] if dry_run else [])]
        resource, metadata = resource_of(body), body["metadata"]
        path = f"{_folder(resource, metadata['namespace'])}/{quote(metadata['name'], safe='')}"
        return await self._ask("PATCH", path, query, body, APPLY_PATCH)

    async def list(self, resource: Resource, labels: str = "", fields: str = "", namespace: str = "") -> list[Body]:
        """The objects of `namespace`, or of every namespace that this operator serves; read page by page."""
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
        """Objects that were added or changed within `seconds`, also those deleted by then, and the resource version to
        continue from. `since` empty: the objects that exist now."""
        query = [("labelSelector", labels), ("fieldSelector", fields)]
        if not since:
            page = await self._ask("GET", _folder(resource, namespace), query)
            return page.get("items") or [], page["metadata"]["resourceVersion"]
        query += [("watch", "true"), ("resourceVersion", since), ("timeoutSeconds", str(seconds))]
        query.append(("allowWatchBookmarks", "true"))
        events = await self._events(_folder(resource, namespace), query)
        for event in events:
            if event["type"] == "ERROR":  # its object is a Status: the failure
                raise ApiError(int(event["object"].get("code") or 0), str(event["object"].get("message")))
            since = event["object"]["metadata"]["resourceVersion"]
        return [event["object"] for event in events if event["type"] in ("ADDED", "MODIFIED")], since

    async def delete(self, resource: Resource, body: Body) -> None:
        """Delete the object of this uid, if it still exists, after everything that it owns."""
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
        """The events of a watch, read to its end; one JSON object per line."""
        asked = {"method": "GET", "path": path, "query": query, "body": None}
        answer: bytes = await called(_request, api=self._kube.api, **asked, form="bytes")
        try:
            return [json.loads(line) for line in answer.splitlines()]
        except ValueError:
            raise ApiError(0, "the API server ended a watch within an event") from None


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
    """The kind of an object that we create; raises KeyError for every other kind."""
    return {(each.api_version, each.kind): each for each in MADE}[body["apiVersion"], body["kind"]]


def _folder(resource: Resource, namespace: str) -> str:
    root = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.version}"
    place = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"{root}{place}/{resource.plural}"
