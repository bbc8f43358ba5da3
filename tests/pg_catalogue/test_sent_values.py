"""Each value of the catalogue can be sent in both formats, and reads as PostgreSQL's own value of that type."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest

from tests.pg_catalogue.samples import Oracle, ask, session
from tidemark_pgwire.catalogue.session_catalogue import Catalogue
from tidemark_pgwire.errors import WireError
from tidemark_pgwire.messages.backend import BINARY, TEXT
from tidemark_pgwire.values.array_parameters import ELEMENTS
from tidemark_pgwire.values.binary import binaries
from tidemark_pgwire.values.parameters import decoded
from tidemark_pgwire.values.rows import columns_of_oids, data_rows
from tidemark_pgwire.values.types import of_oid

RELATIONS = ("class", "type", "attribute", "index", "constraint", "roles", "settings", "database", "stat_activity")

OF_TYPES = {
    1000: ("{t,f,NULL}",),
    1009: ('{a,"NULL","","a b","q\\"\\\\,{}"}',),
    1022: ("{0.1,NaN,-Infinity,1e+300}",),
    1115: ('{"2024-01-31 10:00:00.123456","0001-01-01 00:00:00"}',),
    1182: ("{2024-02-29,0001-01-01,9999-12-31}",),
    1185: ('{"2024-01-31 10:00:00.123456+00"}',),
    1231: ("{1.50,-0.0001,12345678901234567890.5}",),
    2951: ("{12345678-1234-5678-1234-567812345678}",),
}
"""The texts of arrays, by their oids; those of other types have numbers."""


@pytest.mark.parametrize("relation", [*RELATIONS, "timezone_names", "statistic_ext_data", "sequences"])
@pytest.mark.parametrize("format", [TEXT, BINARY])
def test_every_type_is_sent(relation: str, format: int) -> None:
    answer = ask(Catalogue(session()), f"SELECT * FROM pg_catalog.pg_{relation}")
    columns = columns_of_oids(answer.rows.column_names, answer.oids)
    formats = [format] * len(columns)
    sent = [row for batch in answer.rows.to_batches() for row in data_rows(batch, columns, formats, "UTC")]
    assert len(sent) == answer.rows.num_rows
    assert sent or relation in ("timezone_names", "statistic_ext_data", "sequences")


@pytest.mark.postgres
@pytest.mark.parametrize("oid", ELEMENTS)
def test_oracle_arrays_as_parameters(compared: Oracle, oid: int) -> None:
    """PostgreSQL reads the text of what it sends in the binary format as the same array."""
    for text in ("{}", "{NULL}", *OF_TYPES.get(oid, ("{1,NULL,2}", "{7}"))):
        (type,) = compared.connection.execute("SELECT %s::oid::regtype::text", (oid,)).fetchone() or ("",)
        with compared.connection.cursor(binary=True) as cursor:
            cursor.execute(f"SELECT '{text}'::{type}")
            data = cursor.pgresult.get_value(0, 0) if cursor.pgresult else None
        assert data is not None
        again = compared.connection.execute(f"SELECT %s::{type}::text", (decoded(oid, BINARY, bytes(data)).text,))
        assert again.fetchone() == (text,), type


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("type", "oid", "texts"), [("int2vector", 22, ["1 20", "", None]), ("oidvector", 30, ["9", ""])]
)
def test_oracle_vectors(compared: Oracle, type: str, oid: int, texts: list[str | None]) -> None:
    sent = binaries(pa.array(texts, pa.string()), of_oid(oid))
    with compared.connection.cursor(binary=True) as cursor:
        for text, ours in zip(texts, sent, strict=True):
            cursor.execute(f"SELECT %s::text::{type}", (text,))
            assert cursor.pgresult is not None
            theirs = cursor.pgresult.get_value(0, 0)
            assert (theirs if theirs is None else bytes(theirs)) == ours, text


@pytest.mark.parametrize(
    "data",
    [
        b"",
        struct.pack("!iiI", 2, 0, 26),
        struct.pack("!iiIii", 1, 0, 25, 0, 1),
        struct.pack("!iiIii", 1, 0, 26, 1, 1),
        struct.pack("!iiIii", 1, 0, 26, 10**9, 1),
        struct.pack("!iiIiii", 1, 0, 26, 1, 1, 400),
        struct.pack("!iiIiii", 1, 0, 26, 1, 1, -5),
        struct.pack("!iiIiiiI", 1, 0, 26, 1, 1, 4, 9) + b"x",
        struct.pack("!iiIiiiH", 1, 0, 26, 1, 1, 2, 9),
    ],
)
def test_malformed_arrays_are_refused(data: bytes) -> None:
    with pytest.raises(WireError, match="incorrect binary data format"):
        decoded(1028, BINARY, data)
