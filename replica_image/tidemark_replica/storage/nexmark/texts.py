"""Columns of random texts, made as whole arrays: each letter is a hash of its row, its field and its place."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark_replica.storage.tpch.random import Draws, Ints

_LETTERS = np.frombuffer(bytes(ord("a") + i % 26 for i in range(256)), np.uint8)
_WORD = 8
"""Letters of one hash."""


def letters(draw: Draws, field: str, lengths: Ints) -> pa.Array:
    """One text of small letters per row, of the given lengths."""
    if not len(lengths) or not (width := int(lengths.max())):
        return pa.array([""] * len(lengths), pa.string())
    words = [draw.hashes(f"{field}{i}") for i in range(-(-width // _WORD))]
    drawn = np.column_stack(words).view(np.uint8)
    kept = np.arange(drawn.shape[1]) < lengths[:, None]
    return _texts(_LETTERS[drawn[kept]], lengths)


def random_texts(draw: Draws, field: str, least: int, most: int) -> pa.Array:
    """Texts of `least` to `most` letters."""
    return letters(draw, field, least + draw.below(f"{field} length", most - least + 1))


def _texts(characters: npt.NDArray[np.uint8], lengths: Ints) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.StringArray.from_buffers(len(lengths), pa.py_buffer(offsets), pa.py_buffer(characters))
