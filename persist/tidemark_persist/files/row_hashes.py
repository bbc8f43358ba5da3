"""Two 64-bit hashes of each row, by whole columns: equal rows have equal ones, and others differ but for chance.

    number      its bits, as one word (a decimal: two)        text, bytes   the sum of its words of 8 bytes, and length
    NULL        a word of its own                             struct        its fields, then whether it is there
    dictionary  its values, taken by the indices              list          the sum of its elements' hashes, and length

    sum     of key * half, for both halves of each word, by odd keys of 64 bits that are drawn at random for each object
    hash    the sum of a row's words, mixed by a finalizer of Stafford's (splitmix64 has the first)

Halves differ by less than 2^32, so the product of a difference keeps 33 bits of its key at least: whatever the rows
are, two of them collide in one sum with a chance of 2^-32 over the keys at the most, in both with 2^-64, and mostly
with about 2^-120. Rows are equal when their bits are, as for `consolidate`. A text is the same in a dictionary as
outside of one.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from itertools import count

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Words = npt.NDArray[np.uint64]
Pair = tuple[Words, Words]
_WORD = 8
_HALF, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)
_TAILS = np.array([(1 << 8 * size) - 1 for size in range(_WORD)] + [2**64 - 1], np.uint64)
"""What is kept of a word that has so many bytes."""


class RowHashes:
    """Hashes by the keys of this object. Several threads may call it."""

    def __init__(self) -> None:
        self._one = _Hash((30, 27, 31), 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
        self._two = _Hash((31, 27, 33), 0x7FB5D329728EA185, 0x81DADEF4BC2DD44D)

    def first(self, columns: Sequence[pa.Array], rows: int) -> Words:
        """The first hash of `rows` rows, which have these columns."""
        return _of_rows([self._one], columns, rows)[0]

    def both(self, columns: Sequence[pa.Array], rows: int) -> Pair:
        """Both hashes."""
        one, two = _of_rows([self._one, self._two], columns, rows)
        return one, two


class _Hash:
    """One of the hashes: its keys, and the finalizer's shifts and factors."""

    def __init__(self, shifts: tuple[int, int, int], first: int, second: int) -> None:
        self._shifts = [np.uint64(shift) for shift in shifts]
        self._factors = [np.uint64(first), np.uint64(second), None]
        self.seed, self.null, self.length = (np.uint64(secrets.randbits(64)) for _ in range(3))
        self._entropy = secrets.randbits(128)
        self._keys: Words = np.zeros(0, np.uint64)

    def keys(self, places: int) -> Words:
        """Two keys for each of so many places, or more."""
        keys = self._keys
        if len(keys) < 2 * places:
            draw = np.random.Generator(np.random.PCG64(self._entropy))  # which begins with those of before
            keys = draw.integers(0, 2**64, max(256, 4 * places), np.uint64) | np.uint64(1)
            self._keys = keys
        return keys

    def mix(self, words: Words) -> None:
        """Spreads each bit over all, in place; a bijection."""
        shifted = np.empty_like(words)
        for shift, factor in zip(self._shifts, self._factors, strict=True):
            np.right_shift(words, shift, out=shifted)
            np.bitwise_xor(words, shifted, out=words)
            if factor is not None:
                np.multiply(words, factor, out=words)


def _of_rows(hashes: Sequence[_Hash], columns: Sequence[pa.Array], rows: int) -> list[Words]:
    sums = [np.full(rows, hash.seed) for hash in hashes]  # a hash that is zero adds nothing to what it is added to
    places = count()
    for column in columns if rows else ():
        for words, place in zip(_words(hashes, column), places, strict=False):
            parts: tuple[Words, Words] | None = None
            for total, hash, each, before in zip(sums, hashes, words, [None, *words], strict=False):
                if parts is None or each is not before:
                    parts = _halves(each)
                keys = hash.keys(place + 1)
                total += parts[0] * keys[2 * place]
                total += parts[1] * keys[2 * place + 1]
    for total, hash in zip(sums, hashes, strict=True):
        hash.mix(total)
    return sums


def _halves(words: Words) -> tuple[Words, Words]:
    return words & _LOW, words >> _HALF


def _words(hashes: Sequence[_Hash], array: pa.Array) -> Iterator[list[Words]]:
    """What is added up for each value, one word after the other, for each of the hashes."""
    type = array.type
    if pa.types.is_dictionary(type):
        yield from _of_dictionary(hashes, array)
    elif pa.types.is_struct(type):
        for field in array.flatten():
            yield from _words(hashes, field)
        yield [np.asarray(array.is_valid()).astype(np.uint64)] * len(hashes)
    elif pa.types.is_list(type):
        ends = np.asarray(array.offsets).astype(np.int64)
        elements = array.values.slice(ends[0], ends[-1] - ends[0])
        found = _of_rows(hashes, [elements], len(elements))
        yield _with_nulls(hashes, array, _sequences(hashes, ends - ends[0], found))
    elif pa.types.is_string(type) or pa.types.is_binary(type):
        yield _with_nulls(hashes, array, _of_bytes(hashes, array))
    else:
        for word in _fixed(array):
            yield _with_nulls(hashes, array, [word] * len(hashes))


def _of_dictionary(hashes: Sequence[_Hash], array: pa.DictionaryArray) -> Iterator[list[Words]]:
    values, indices = array.dictionary, array.indices
    if not len(values):
        yield from _words(hashes, pa.nulls(len(array), array.type.value_type))
        return
    at = np.asarray(indices.fill_null(0) if indices.null_count else indices)
    for found in _words(hashes, values):
        yield _with_nulls(hashes, indices, [each[at] for each in found])


def _of_bytes(hashes: Sequence[_Hash], array: pa.Array) -> list[Words]:
    """Of texts and bytes, whose last word is filled up with zeros."""
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    lengths = np.diff(offsets).astype(np.int64)
    counts = -(-lengths // _WORD)
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    firsts = np.repeat(offsets[:-1] - _WORD * ends[:-1], counts) + _WORD * np.arange(ends[-1])
    words = _words_at(array.buffers()[2], firsts)
    some = counts > 0
    words[ends[1:][some] - 1] &= _TAILS[(lengths - _WORD * (counts - 1))[some]]
    # counts do not tell lengths
    found = _sequences(hashes, ends, [words] * len(hashes))
    return [each + lengths.astype(np.uint64) * hash.length for each, hash in zip(found, hashes, strict=True)]


def _sequences(hashes: Sequence[_Hash], ends: npt.NDArray[np.int64], values: Sequence[Words]) -> list[Words]:
    """The sum of each run of values, and its length. `ends`: of the runs, after the begin of the first."""
    counts = np.diff(ends)
    places = np.arange(ends[-1]) - np.repeat(ends[:-1], counts)
    longest = int(counts.max(initial=0))
    found = []
    for hash, each in zip(hashes, values, strict=True):
        (low, high), keys = _halves(each), hash.keys(longest)
        products = low * keys[2 * places] + high * keys[2 * places + 1]
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(products, dtype=np.uint64)])
        found.append(sums[ends[1:]] - sums[ends[:-1]] + counts.astype(np.uint64) * hash.length)
    return found


def _with_nulls(hashes: Sequence[_Hash], array: pa.Array, words: list[Words]) -> list[Words]:
    if not array.null_count:
        return words
    valid = np.asarray(array.is_valid())
    return [np.where(valid, each, hash.null) for each, hash in zip(words, hashes, strict=True)]


def _fixed(array: pa.Array) -> list[Words]:
    """Values of a fixed width as words."""
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.int8())
    width, count = array.type.bit_width // 8, len(array)
    if (data := array.buffers()[1]) is None:
        return [np.zeros(count, np.uint64)] * max(1, width // _WORD)
    if width <= _WORD:
        return [np.frombuffer(data, f"u{width}", count, array.offset * width).astype(np.uint64, copy=False)]
    pairs = np.frombuffer(data, np.uint64, count * width // _WORD, array.offset * width).reshape(count, width // _WORD)
    return [np.ascontiguousarray(pairs[:, i]) for i in range(width // _WORD)]


def _words_at(data: pa.Buffer | None, firsts: npt.NDArray[np.int64]) -> Words:
    """The 8 bytes from each position on; what is after the end of the data is zero."""
    if not len(firsts) or data is None:
        return np.zeros(len(firsts), np.uint64)
    begin, end = int(firsts.min()) // _WORD * _WORD, int(firsts.max()) + 2 * _WORD
    padded = np.zeros(-(-(end - begin) // _WORD) * _WORD, np.uint8)
    used = np.frombuffer(data, np.uint8)[begin:end]
    padded[: len(used)] = used
    whole, at = padded.view(np.uint64), firsts - begin
    shift = (at % _WORD * 8).astype(np.uint64)
    at //= _WORD
    return (whole[at] >> shift) | (whole[at + 1] << np.uint64(1) << (np.uint64(63) - shift))
