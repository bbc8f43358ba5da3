"""The bodies of a call of several tables, which follow each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidemark_replica.storage.written.refusal import BAD_REQUEST, WriteRefused


class BodyCutter:
    """Cuts pieces, wherever they end, into bodies of given sizes."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces, self._rest = iter(pieces), b""

    def next(self, size: int) -> Iterator[bytes]:
        """The pieces of the next body, which is to be read whole. Raises WriteRefused, and what the pieces raise."""
        while size:
            if not self._rest and (piece := next(self._pieces, None)) is None:
                raise _other_size()
            elif not self._rest:
                self._rest = piece or b""
            part, self._rest = self._rest[:size], self._rest[size:]
            size -= len(part)
            yield part

    def end(self) -> None:
        """Read what is behind the last body: nothing. Raises as `next`."""
        if self._rest or any(self._pieces):
            raise _other_size()


def _other_size() -> WriteRefused:
    return WriteRefused(BAD_REQUEST, "the bodies of the tables have other sizes than the call says")
