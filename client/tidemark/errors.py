"""The client's errors: those of PEP 249, and what the gateway answers as one of them.

Error
├── InterfaceError          the client is used in a way that it cannot be: a closed cursor, a value that is no literal
└── DatabaseError
    ├── OperationalError
    │   ├── GatewayUnknown  nothing says where the gateway is
    │   └── GatewayFailed   the gateway cannot be reached, or cannot answer now; the caller lacks a right
    ├── ProgrammingError    the statement is refused
    │   └── RelationChanged     of Spark: the relation is not what it was
    ├── DataError           the time cannot be read any more, or not yet; a value fits no type
    │   ├── OffsetTooOld        of a Spark stream: its checkpoint
    │   └── ViewInError         of a Spark stream: rows that cannot be computed
    ├── NotSupportedError   this gateway, or Tidemark, has no such thing
    ├── IntegrityError      is there for PEP 249: nothing raises it
    └── InternalError       a defect
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the command line's help needs no gRPC
    import grpc


class Warning(Exception):
    """PEP 249 asks for this class; nothing raises it."""


class Error(Exception):
    """Root of the client's errors. The text says why and what to do. `code`: gRPC's; None: no call failed. `sqlstate`:
    PostgreSQL's code for the gateway's refusal; empty: the gateway did not answer."""

    def __init__(self, text: str, code: grpc.StatusCode | None = None, sqlstate: str = "") -> None:
        super().__init__(text)
        self.code, self.sqlstate = code, sqlstate


class InterfaceError(Error):
    """The client cannot do what it was called for."""


class DatabaseError(Error):
    """Tidemark, or the way to it."""


class OperationalError(DatabaseError):
    """An error that is not the statement's fault."""


class ProgrammingError(DatabaseError):
    """The statement, or a name in it, is wrong."""


class DataError(DatabaseError):
    """A value or a time is out of range."""


class NotSupportedError(DatabaseError):
    """There is no such thing."""


class OffsetTooOld(DataError):
    """The checkpoint of a Spark stream is of a time whose changes cannot be read any more."""


class ViewInError(DataError):
    """A Spark stream cannot pass a time at which its view has rows in error."""


class RelationChanged(ProgrammingError):
    """The relations of a Spark stream's checkpoint, or the columns of a DataFrame, are not those of the name now."""


class IntegrityError(DatabaseError):
    """Nothing raises it."""


class InternalError(DatabaseError):
    """A defect of the gateway."""


class GatewayUnknown(OperationalError):
    """No file, no object of the cluster and no argument holds the gateway's address."""


class GatewayFailed(OperationalError):
    """The gateway cannot be reached, or cannot answer the call now, or not to this caller."""


_OF_CODE: dict[str, type[Error]] = {
    "INVALID_ARGUMENT": ProgrammingError,
    "OUT_OF_RANGE": DataError,
    "UNIMPLEMENTED": NotSupportedError,
    "INTERNAL": InternalError,
    "UNKNOWN": InternalError,
}


_PASSING = frozenset(
    {"UNAVAILABLE", "UNAUTHENTICATED", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "ABORTED", "CANCELLED"}
)
"""Names of gRPC's codes."""
_NOT_YET = "57P03"
"""The gateway's SQLSTATE where the same call may succeed soon: no replica or no planner answers yet. Others with its
code, FAILED_PRECONDITION, do not pass."""


def is_passing(error: Error) -> bool:
    """Whether a read that failed so may succeed a little later: the gateway is away, is another, or has only begun."""
    if isinstance(error, GatewayUnknown):
        return True
    if not isinstance(error, GatewayFailed):
        return False
    return error.code is None or error.code.name in _PASSING or error.sqlstate == _NOT_YET


def of_code(text: str, code: grpc.StatusCode, sqlstate: str = "") -> Error:
    """The error of a call that ended with this status."""
    return _OF_CODE.get(code.name, GatewayFailed)(text, code, sqlstate)
