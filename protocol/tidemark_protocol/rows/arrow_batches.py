"""The record batches of an Arrow stream that comes in pieces.

piece ──► feed ──► the batches that are complete now; the rest waits for the next piece
"""

from __future__ import annotations

import pyarrow as pa

from tidemark_protocol.errors import BatchTooLarge, StreamBroken

BATCH_BYTES_MAX = 32 << 20


class ArrowBatches:
    """Holds one incomplete message, of at most BATCH_BYTES_MAX."""

    def __init__(self) -> None:
        self._rest = b""
        self._schema: pa.Schema | None = None

    def feed(self, piece: bytes) -> list[pa.RecordBatch]:
        """Raises BatchTooLarge."""
        self._rest += piece
        source, batches, read = pa.BufferReader(self._rest), list[pa.RecordBatch](), 0
        while (message := _message(source)) is not None:
            read = source.tell()
            if self._schema is None:
                self._schema = pa.ipc.read_schema(message)
            else:
                batches.append(pa.ipc.read_record_batch(message, self._schema))
        self._rest = self._rest[read:]
        if len(self._rest) > BATCH_BYTES_MAX:
            raise BatchTooLarge(f"65536 rows of the answer have more than {BATCH_BYTES_MAX} bytes")
        return batches

    def finish(self) -> None:
        """Raises StreamBroken where the stream is not complete."""
        if self._schema is None or self._rest not in (b"", _END):
            raise StreamBroken("the replica's answer is not a whole Arrow stream")


_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""The bytes that end a stream."""


def _message(source: pa.BufferReader) -> pa.Message | None:
    """The next message; None: it is not complete, or there is none."""
    try:
        return pa.ipc.read_message(source)
    except (EOFError, OSError, pa.ArrowInvalid):
        return None
