"""Tidemark for programs: a DB-API (PEP 249) connection, rows as Arrow, and changes as they happen.

    import tidemark

    with tidemark.connect(namespace="team-a") as connection, connection.cursor() as cursor:
        cursor.execute("SELECT carrier, flights FROM delays WHERE flights > ?", [1000])
        table = cursor.fetch_arrow()

module                                what it does
connection, cursor, changes           what programs use
literals, type_objects                parameters as literals, types of PEP 249
spark/                                a data source of Spark: imported where pyspark is
link, gateway/                        the way to the gateway; the command line has the same one
answers, errors                       replies as Arrow; failures as errors of PEP 249
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidemark.changes import TimedChanges
    from tidemark.connection import Connection, connect
    from tidemark.cursor import Cursor
    from tidemark.errors import (
        DatabaseError,
        DataError,
        Error,
        IntegrityError,
        InterfaceError,
        InternalError,
        NotSupportedError,
        OffsetTooOld,
        OperationalError,
        ProgrammingError,
        RelationChanged,
        ViewInError,
        Warning,
    )
    from tidemark.type_objects import (
        BINARY,
        DATETIME,
        NUMBER,
        ROWID,
        STRING,
        Binary,
        Date,
        DateFromTicks,
        Timestamp,
        TimestampFromTicks,
    )

apilevel, threadsafety, paramstyle = "2.0", 1, "qmark"
_MODULES = ("errors", "type_objects", "connection", "cursor", "changes")

__all__ = [
    "BINARY",
    "DATETIME",
    "NUMBER",
    "ROWID",
    "STRING",
    "Binary",
    "Connection",
    "Cursor",
    "DataError",
    "DatabaseError",
    "Date",
    "DateFromTicks",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "NotSupportedError",
    "OffsetTooOld",
    "OperationalError",
    "ProgrammingError",
    "RelationChanged",
    "TimedChanges",
    "Timestamp",
    "TimestampFromTicks",
    "ViewInError",
    "Warning",
    "apilevel",
    "connect",
    "paramstyle",
    "threadsafety",
]


def __getattr__(name: str) -> object:
    """A name of `__all__`, with its module: the command line needs no pyarrow to find the gateway."""
    if name in __all__:
        for module in _MODULES:
            found = import_module(f"tidemark.{module}")
            if hasattr(found, name):
                globals()[name] = value = getattr(found, name)
                return value
    raise AttributeError(f"module 'tidemark' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
