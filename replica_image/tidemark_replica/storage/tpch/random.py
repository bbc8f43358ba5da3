"""Random numbers without state: each is a hash of its use.

    draw(seed, order, line, "quantity", 50)      the same in any order, on any machine

So the rows of a transaction are a function of its number, and can be computed again to be retracted.
"""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """SplitMix64's finaliser (Steele, Lea, Flood 2014)."""
    x = x + _GOLDEN
    x = (x ^ (x >> np.uint64(30))) * _M1
    x = (x ^ (x >> np.uint64(27))) * _M2
    return x ^ (x >> np.uint64(31))


class Draws:
    """Draws for the rows identified by `keys` (columns of equal length), under one seed."""

    def __init__(self, seed: int, *keys: Ints) -> None:
        state = _mix(np.full(len(keys[0]), seed, np.int64).view(np.uint64))
        for key in keys:
            state = _mix(state ^ key.astype(np.int64).view(np.uint64))
        self._state, self.rows = state, len(state)

    def below(self, field: str, bound: int | Ints) -> Ints:
        """One number in 0..bound-1 per row, independent for each `field`."""
        drawn = self.hashes(field) % np.asarray(bound, np.uint64)
        return drawn.astype(np.int64)

    def hashes(self, field: str) -> npt.NDArray[np.uint64]:
        """64 random bits per row, independent for each `field`."""
        return _mix(self._state ^ np.uint64(zlib.crc32(field.encode())))
