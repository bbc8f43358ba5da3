"""The row that an error row is of, where a table's changes name rows by key: a digest of the key, in the error's text.

key texts ["7", "é"]  ──►  digest  ──►  {"code":"VALUE_NOT_REPRESENTABLE","expression":"amount","row":"9f.."}
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import pyarrow as pa
import pyarrow.compute as pc

DIGEST = "row"
_PATTERN = r'"row":"(?P<row>[0-9a-f]{32})"\}$'


def digests(keys: Sequence[pa.Array]) -> pa.Array:
    """The digest of each row's key. `keys`: the texts of the key's columns, as PostgreSQL prints them."""
    rows = zip(*(column.to_pylist() for column in keys), strict=True)
    return pa.array([blake2b("\0".join(row).encode(), digest_size=16).hexdigest() for row in rows], pa.string())


def with_digests(errors: pa.Array, keys: Sequence[pa.Array]) -> pa.Array:
    """The texts of errors with the digests of their rows; NULL where there is no error."""
    wrong = pc.is_valid(errors)
    texts = pc.utf8_slice_codeunits(errors.filter(wrong), 0, -1)
    of_rows = digests([column.filter(wrong) for column in keys])
    texts = pc.binary_join_element_wise(texts, f',"{DIGEST}":"', of_rows, '"}', "")
    return pc.replace_with_mask(errors, wrong, texts)


def digests_in(errors: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The digests of the texts; NULL where a text has none, as its table had no key then."""
    found = pc.extract_regex(errors, _PATTERN)
    return pc.struct_field(found, DIGEST)
