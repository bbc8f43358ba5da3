"""Values with a registry's frame: they are decoded together by the schema that their writers name.

    0 │ id, 4 bytes │ body          the ids of a batch ─► a decoder for each ─► columns, in the order of the records

A frame that names no schema, or one that does not fit the reader's, makes its record malformed, and no other.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark_replica.storage.avro.bodies import combined
from tidemark_replica.storage.kafka.values.decoded import Decoded
from tidemark_replica.storage.schema_registry import NotRegistered, RegisteredSchema, RegistryAway, SchemaRegistry

FRAME_BYTES = 5
DECODERS_MAX = 256
"""Schemas of writers whose decoders are kept for a table."""
QUESTIONS_SECONDS = 2.0
"""The time for which a batch may ask the registry. It waits then, and the next one has fewer records."""


class TooManySchemas(RegistryAway):
    """The records of a batch are of more schemas than the registry gives in QUESTIONS_SECONDS."""


class WriterUnfit(Exception):
    """The values of a writer cannot be read. The message says why."""


class BodyDecoder(Protocol):
    """Decodes values that writers with one schema wrote."""

    def __call__(self, values: Sequence[bytes], skip: int = 0) -> tuple[list[pa.Array], dict[int, str]]:
        """The columns of the good values, and why others are malformed. The first `skip` bytes are no part."""


class UniformValues:
    """Values that one decoder reads, some of them missing. `is_framed`: a frame is taken off, whatever schema it
    names."""

    def __init__(self, schema: pa.Schema, decode: BodyDecoder, is_framed: bool) -> None:
        self._schema, self._decode, self._is_framed = schema, decode, is_framed

    def __call__(self, values: Sequence[bytes | None]) -> Decoded:
        batch = _Batch(self._schema, values)
        rows, skip = (batch.frames()[0], FRAME_BYTES) if self._is_framed else (batch.present, 0)
        batch.decode(rows, self._decode, skip)
        return batch.decoded()


class FramedValues:
    """Values with a frame, some of them missing. `registry` knows the schema of an id, `decoder_of` makes its
    decoder or raises WriterUnfit. Raises RegistryAway."""

    def __init__(
        self,
        schema: pa.Schema,
        registry: SchemaRegistry,
        decoder_of: Callable[[RegisteredSchema, int], BodyDecoder],
    ) -> None:
        self._schema, self._registry, self._decoder_of = schema, registry, decoder_of
        self._kept: OrderedDict[int, BodyDecoder | WriterUnfit] = OrderedDict()
        self._asked = 0.0
        """Seconds that the registry was asked for this batch."""

    def __call__(self, values: Sequence[bytes | None]) -> Decoded:
        batch = _Batch(self._schema, values)
        framed, ids = batch.frames()
        self._asked = 0.0
        decoders = self._decoders(list(map(int, np.unique(ids))))
        for id, decode in decoders.items():
            rows = framed[ids == id]
            if isinstance(decode, WriterUnfit):
                batch.bad |= dict.fromkeys(map(int, rows), str(decode))
            else:
                batch.decode(rows, decode, FRAME_BYTES)
        return batch.decoded()

    def _decoders(self, ids: Sequence[int]) -> dict[int, BodyDecoder | WriterUnfit]:
        """A decoder for each id, or why there is none. The registry is asked for all of them before RegistryAway is
        raised, and first for those that it was asked for least lately: it answers for others meanwhile."""
        found: dict[int, BodyDecoder | WriterUnfit] = {}
        away: RegistryAway | None = None
        for id in sorted(ids, key=self._registry.asked_at):
            try:
                found[id] = self._decoder(id)
            except TooManySchemas as error:
                raise away or error from None
            except RegistryAway as error:
                away = away or error
        if away is not None:
            raise away
        return found

    def _decoder(self, id: int) -> BodyDecoder | WriterUnfit:
        if (kept := self._kept.get(id)) is not None:
            self._kept.move_to_end(id)
            return kept
        if self._asked > QUESTIONS_SECONDS:
            raise TooManySchemas(
                f"the registry gave {QUESTIONS_SECONDS:g} s long schemas of a batch, and there are more; fewer records "
                "are read at a time now. Check why the registry is slow, or why records are of so many schemas"
            )
        begin = monotonic()
        try:
            found = self._registry.by_id(id)
        except NotRegistered:
            return WriterUnfit(f"the registry has no schema {id}")
        finally:
            self._asked += monotonic() - begin
        made: BodyDecoder | WriterUnfit
        try:
            made = self._decoder_of(found, id)
        except WriterUnfit as unfit:
            made = unfit
        except MemoryError:
            raise
        except Exception as error:  # whatever a schema is: it must not stop records of others
            made = WriterUnfit(f"schema {id} of its writer cannot be used: {type(error).__name__}")
        self._kept[id] = made
        while len(self._kept) > DECODERS_MAX:
            self._kept.popitem(last=False)
        return made


class _Batch:
    """Values of which groups are decoded one after the other."""

    def __init__(self, schema: pa.Schema, values: Sequence[bytes | None]) -> None:
        self._schema, self._values = schema, values
        self.bad: dict[int, str] = {}
        missing = np.fromiter((value is None for value in values), np.bool_, len(values))
        self.present, absent = np.flatnonzero(~missing), np.flatnonzero(missing)
        self._parts = [(absent, [pa.nulls(len(absent), field.type) for field in schema])]

    def frames(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.uint32]]:
        """The values with a frame, and the ids in them; the others are malformed."""
        heads = [value[:FRAME_BYTES] for value in self._values if value is not None]
        whole = np.fromiter((len(h) == FRAME_BYTES and h[0] == 0 for h in heads), np.bool_, len(heads))
        reason = "it has no frame of a registry: a zero byte, then the number of a schema"
        self.bad |= dict.fromkeys(map(int, self.present[~whole]), reason)
        data = b"".join([head[1:] for head, good in zip(heads, whole, strict=True) if good])
        return self.present[whole], np.frombuffer(data, ">u4").astype(np.uint32)

    def decode(self, rows: npt.NDArray[np.intp], decode: BodyDecoder, skip: int) -> None:
        """Decodes the values of these rows."""
        if not len(rows):
            return
        columns, bad = decode([self._values[row] for row in rows], skip)
        self.bad |= {int(rows[i]): why for i, why in bad.items()}
        self._parts.append((np.delete(rows, list(bad)) if bad else rows, columns))

    def decoded(self) -> Decoded:
        parts = [(rows, columns) for rows, columns in self._parts if len(rows)]
        count = sum(len(rows) for rows, _ in parts)
        columns = [
            combined([(rows, each[i]) for rows, each in parts], field.type, count)
            for i, field in enumerate(self._schema)
        ]
        return Decoded(columns, dict(sorted(self.bad.items())))
