"""A table whose rows clients write, as the gateway describes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidemark_pgwire.errors import FEATURE_NOT_SUPPORTED, UNDEFINED_COLUMN, WireError
from tidemark_protocol.types import Column


@dataclass(frozen=True)
class WritableTable:
    """`name`: of the table in `source`. `id`: another table of the name has another one."""

    source: str
    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    id: str = ""

    def __str__(self) -> str:
        return f"{self.source}.{self.name}"

    def chosen(self, names: Sequence[str]) -> tuple[Column, ...]:
        """The columns of these names, in their order; all where there are none. Raises WireError."""
        if not names:
            return self.columns
        known = {column.name.lower(): column for column in self.columns}  # SQL ignores upper and lower case
        for name in names:
            if name.lower() not in known:
                raise WireError(UNDEFINED_COLUMN, f'column "{name:.80}" of relation "{self}" does not exist')
        if len({name.lower() for name in names}) < len(names):
            raise WireError("42701", f'a column of "{self}" is named twice')
        return tuple(known[name.lower()] for name in names)


def other_table(first: WritableTable, other: WritableTable) -> WireError:
    """The error of a transaction that would write both, of two DataSources, or a table that was made anew."""
    if first.source == other.source:
        text = f"this transaction has rows for {first} as it was before, and it is another table now"
        return WireError("40001", text, hint="Repeat the transaction.")
    return WireError(
        FEATURE_NOT_SUPPORTED,
        f"a transaction writes tables of one DataSource: this one has rows for {first}, and {other} is of another",
        hint="COMMIT between the DataSources.",
    )
