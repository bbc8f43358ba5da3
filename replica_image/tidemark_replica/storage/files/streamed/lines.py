"""Splits a stream of bytes into lines, as Hadoop's reader does: at `\\n`, `\\r\\n` and `\\r`.

    bytes 12,a\\n13,b\\r\\n14  ──►  ["12,a", "13,b"], then ["14"]

A last line without its end is a line. Bytes that are not UTF-8 are an error: Spark's reader would put U+FFFD in their
place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

LINE_BYTES_MAX = 64 << 20
_BOM = b"\xef\xbb\xbf"


class NotText(Exception):
    """The bytes are not UTF-8, or a line is longer than LINE_BYTES_MAX."""


def lines(chunks: Iterable[bytes], *, at_start: bool = True) -> Iterator[pa.StringArray]:
    """The lines without their ends; about as many of them in an array as there are in a chunk. `at_start`: the chunks
    begin where the file does, perhaps with a byte order mark. Raises NotText."""
    rest, first = b"", at_start
    for chunk in chunks:
        data = rest + chunk
        if first and len(data) < len(_BOM) and _BOM.startswith(data):
            rest = data
            continue
        data, first = data.removeprefix(_BOM) if first else data, False
        # the `\n` of a last `\r` may be in the next chunk
        held = b"\r" if data.endswith(b"\r") else b""
        data = _with_newlines(data[: len(data) - len(held)])
        end = data.rfind(b"\n") + 1
        rest = data[end:] + held
        if len(rest) > LINE_BYTES_MAX:
            raise NotText(f"a line is longer than {LINE_BYTES_MAX >> 20} MB")
        if end:
            yield _split(data[:end])
    if rest := _with_newlines(rest):
        yield _split(rest if rest.endswith(b"\n") else rest + b"\n")


def _with_newlines(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in data else data


def _split(data: bytes) -> pa.StringArray:
    """The lines of bytes that end with a newline and have no other ends of lines."""
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")) + 1
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    found = pa.StringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(data))
    try:
        found.validate(full=True)
    except pa.ArrowInvalid:
        raise NotText("it is not UTF-8") from None
    return pc.ascii_rtrim(found, characters="\n")
