"""PostgreSQL's types, as pg_type has them: those of `system_types.tsv`.

A line of the file is a type of PostgreSQL 15: its oid, its name, the name that `format_type` prints, and columns of
pg_type from `typlen` on. Functions are written `OID NAME`, and `0 -` where there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True)
class CatalogueType:
    """A row of pg_type. `printed`: what format_type says. `functions`: oid and name of typinput, typoutput, typreceive,
    typsend, typmodin, typmodout, typsubscript and typanalyze."""

    oid: int
    name: str
    printed: str
    length: int
    by_value: bool
    kind: str
    category: str
    preferred: bool
    delimiter: str
    element: int
    array: int
    alignment: str
    storage: str
    collation: int
    functions: tuple[tuple[int, str], ...]


@cache
def system_types() -> Mapping[str, CatalogueType]:
    """The types by name."""
    lines = files(__package__).joinpath("system_types.tsv").read_text().splitlines()
    return {one.name: one for one in map(_type_of, lines)}


def _type_of(line: str) -> CatalogueType:
    oid, name, printed, length, by_value, kind, category, preferred, delimiter, *rest = line.split("\t")
    element, array, alignment, storage, collation, *functions = rest
    called = tuple((int(number), called) for number, called in (f.split(" ") for f in functions))
    return CatalogueType(
        int(oid), name, printed, int(length), by_value == "1", kind, category, preferred == "1", delimiter,
        int(element), int(array), alignment, storage, int(collation), called,
    )  # fmt: skip


@cache
def types_by_oid() -> Mapping[int, CatalogueType]:
    return {one.oid: one for one in system_types().values()}
