"""The errors of definitions, with their SQLSTATEs."""

from __future__ import annotations

import json

from tidemark_operator.errors import DefinitionRefused, WriteUnknown
from tidemark_operator.gateway.auth.access import ReviewUnavailable
from tidemark_operator.gateway.definitions.definition import KINDS
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import ApiError


def exists(name: str) -> DefinitionRefused:
    return DefinitionRefused("42P07", f'relation "{name}" already exists')


def changed(key: Key) -> DefinitionRefused:
    text = f"{key.resource.kind} {key.name} was just changed by another: run the statement again"
    return DefinitionRefused("40001", text)


def not_created(key: Key, conflict: ApiError) -> DefinitionRefused:
    text = f"the API server did not create {key.resource.kind} {key.name}: {message(conflict)}"
    return DefinitionRefused("40001", text)


def dropped(key: Key, table: str) -> DefinitionRefused:
    return DefinitionRefused("55000", f"table {key.name}.{table} was created by this statement, and dropped since")


def being_deleted(key: Key) -> DefinitionRefused:
    text = f"{key.resource.kind} {key.name} is being deleted: run the statement again later"
    return DefinitionRefused("55006", text)


def absent(name: str, kind: str) -> DefinitionRefused:
    return DefinitionRefused("42P01", f'{KINDS[kind]} "{name}" does not exist')


def of_api_error(error: ApiError) -> Exception:
    text = message(error)
    if error.status == 403:  # a right of the operator, a quota, a policy: their reason in the Status is the same one
        return DefinitionRefused("42501", f"the API server refuses the operator's write: {text}")
    if error.status == 404:
        return DefinitionRefused("42P01", text)
    if error.status in (400, 422):
        return DefinitionRefused("22023", text)
    if error.status == 429:
        return ReviewUnavailable(f"the API server has no time: {text}")
    return WriteUnknown(f"the API server did not answer, so the change may be stored or not: {text}")


def message(error: ApiError) -> str:
    """The message of the API server's Status, or the whole text where that cannot be read."""
    _, _, body = str(error).partition(": ")
    try:
        found = json.loads(body)
    except ValueError:
        return str(error)
    return str(found.get("message", error)) if isinstance(found, dict) else str(error)
