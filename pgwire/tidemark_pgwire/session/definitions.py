"""Runs CREATE, ALTER and DROP: the gateway writes the object, within the rights of the session's user.

statement ──► no transaction, no parameters ──► the gateway, again by the same id where it is lost ──► tag, notices
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemark_pgwire import errors
from tidemark_pgwire.errors import WireError
from tidemark_pgwire.session.settings import BOOLS
from tidemark_pgwire.session.statements import StatementSession, definition_request
from tidemark_pgwire.statements.definitions import Define, Drop
from tidemark_pgwire.values.parameters import Parameter
from tidemark_protocol.pb import gateway_pb2 as pb


def not_alone(tag: str) -> WireError:
    """The error of a statement that is in a transaction, or in a message with others."""
    return WireError(errors.ACTIVE_TRANSACTION, f"{tag} cannot run inside a transaction block")


async def define(session: StatementSession, command: Define, parameters: Sequence[Parameter]) -> str:
    """Create or edit an object; returns the tag. Raises WireError."""
    _require_possible(session, command.tag, parameters)
    request = definition_request(session, command)
    request.wait = _wait(session, command.options.get("wait"))
    try:
        reply = await session.link.define(session.token, request)
    except WireError as error:
        if error.position:
            error.position = 0 if command.at is None else error.position + command.at
        raise
    finally:
        session.forget_relations()
    if reply.outcome == "exists" and command.action == "replace":
        [column] = command.columns
        session.notify(f'column "{column}" of relation "{command.relation}" already exists, skipping', "42701")
    elif reply.outcome == "exists":
        session.notify(f'relation "{command.relation}" already exists, skipping', "42P07")
    elif reply.outcome == "absent":
        session.notify(f'relation "{command.relation}" does not exist, skipping')
    if reply.warning:
        session.warn(reply.warning)
    return command.tag


async def drop(session: StatementSession, command: Drop, parameters: Sequence[Parameter]) -> str:
    """Delete an object; returns the tag. Raises WireError."""
    _require_possible(session, command.tag, parameters)
    request = pb.DropRequest(
        namespace=session.namespace,
        name=command.name,
        kind=command.kind,
        if_present=command.optional,
        wait=_wait(session, None),
        table=command.table,
    )
    try:
        reply = await session.link.drop(session.token, request)
    finally:
        session.forget_relations()
    if reply.outcome == "absent":
        session.notify(f'{command.what.lower()} "{command.relation}" does not exist, skipping')
    if reply.warning:
        session.warn(reply.warning)
    return command.tag


def _require_possible(session: StatementSession, tag: str, parameters: Sequence[Parameter]) -> None:
    session.require_writable(tag)
    if session.transaction.explicit or session.transaction.pending is not None:
        raise not_alone(tag)
    if parameters:
        raise WireError(errors.FEATURE_NOT_SUPPORTED, f"{tag} takes no parameters: write the values into the statement")


def _wait(session: StatementSession, given: str | None) -> bool:
    """Whether the statement waits: by its own option, else by the setting."""
    if given is None:
        return session.settings.wait
    if (found := BOOLS.get(given.strip().lower())) is None:
        raise WireError(errors.INVALID_PARAMETER, f"option wait is on or off, not {given:.40}")
    return found == "on"
