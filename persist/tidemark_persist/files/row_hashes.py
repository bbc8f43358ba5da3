"""Two 64-bit hashes of each row, by whole columns: equal rows have equal ones, and others differ but for chance.

    number      its bits, as one word (a decimal: two)        text, bytes   the sum of its words of 8 bytes, and length
    NULL        a word of its own                             struct        its fields, then whether it is there
    dictionary  its values, taken by the indices              list          the sum of its elements' hashes, and length
    long text   the list of its pieces, and the text's length

    sum     of key[place] * word + high_key[place] * (word div 2^32), modulo 2^64
    hash    the sum of a row's words, mixed by a finalizer, which is a bijection

**Two rows that differ** have the same hash with a probability of at most n * 2^-33 over the keys, and both hashes are
the same with at most n^2 * 2^-66. n is the number of levels of the rows: 1 for numbers, 2 for texts, 3 for arrays of
numbers, 4 for arrays of texts and for long texts, 6 for arrays of these. (A NULL is a random word. Where it meets
another value, 2^-64 is to be added to n * 2^-33.) This holds for any two rows that are chosen without knowing the keys:

1. Each object draws its keys from the system: 64 random bits for each place, half, level and hash, all independent.
2. Carter and Wegman's multilinear hashing, of halves: the product of a word of halves low and high is
   key * low + (2^32 * key + high_key) * high. The two factors are as random and independent as the two keys. So the
   sums of two rows differ by the sum of factor * d, where d is the difference of two halves. Take a d that is not zero:
   its size is less than 2^32, so 2^31 is the largest power of two that may divide it. For all other factors, the sums
   are equal where factor * d = c (mod 2^64): for at most 2^31 of the 2^64 factors. Lemire and Kaser ("Strongly
   universal string hashing is fast", 2012) show more of the upper half of such a sum; here all of the sum is kept.
3. Words behind the end of a text count as zeros, so texts differ in a word or in their length, which is the word of
   place 0; so do lists. The sum of a text or a list is a word of the level above, which has other keys: two of them
   are equal by their own level's keys, or are words that differ on the level above. So the probabilities are added.
4. The keys of the two hashes are independent, so the probabilities are multiplied.

Of three and more rows, whose hashes might add up to zero, nothing is proven: the finalizers (Stafford's; splitmix64
has the first) are there to make that as rare as of random numbers.

Rows are equal when their bits are, as for `consolidate`. A text is the same in a dictionary as outside of one.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from threading import Lock

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Words = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]
Pair = tuple[Words, Words]
_WORD = 8
_HALF = np.uint64(32)
_KEYS_MIN = 256
SLICE_BYTES = 4 << 20
"""Rows of more bytes are hashed in slices."""
PIECE_BYTES = 1 << 20
"""A text of more bytes is hashed as a list of pieces."""
_TAILS = np.array([(1 << 8 * size) - 1 for size in range(_WORD)] + [2**64 - 1], np.uint64)
"""Masks, by number of bytes: the mask keeps so many bytes of a word."""


class RowHashes:
    """Hashes by the keys of this object. Several threads may call it."""

    def __init__(self) -> None:
        self._one = _Hash((30, 27, 31), 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
        self._two = _Hash((31, 27, 33), 0x7FB5D329728EA185, 0x81DADEF4BC2DD44D)

    def first_hash(self, columns: Sequence[pa.Array], rows: int) -> Words:
        """The first hash of `rows` rows, which have these columns."""
        return _of_rows([self._one], columns, rows)[0]

    def hash_pair(self, columns: Sequence[pa.Array], rows: int) -> Pair:
        """Both hashes of `rows` rows, which have these columns."""
        one, two = _of_rows([self._one, self._two], columns, rows)
        return one, two


class _Hash:
    """One of the hashes: its keys, and the finalizer's shifts and factors."""

    def __init__(self, shifts: tuple[int, int, int], first: int, second: int) -> None:
        self._shifts = [np.uint64(shift) for shift in shifts]
        self._factors = [np.uint64(first), np.uint64(second), None]
        self.seed, self.null = _random(2)
        self._keys: dict[int, Words] = {}
        self._lock = Lock()

    def keys(self, level: int, count: int) -> Words:
        """uint64[2, at least count]: of the words and of their upper halves, by place. They never change."""
        with self._lock:
            keys = self._keys.get(level, np.zeros((2, 0), np.uint64))
            if (missing := count - keys.shape[1]) > 0:
                more = max(missing, keys.shape[1], _KEYS_MIN)
                keys = self._keys[level] = np.concatenate([keys, _random(2 * more).reshape(2, more)], axis=1)
            return keys

    def mix(self, words: Words) -> None:
        """Spreads each bit over all, in place; a bijection."""
        shifted = np.empty_like(words)
        for shift, factor in zip(self._shifts, self._factors, strict=True):
            np.right_shift(words, shift, out=shifted)
            np.bitwise_xor(words, shifted, out=words)
            if factor is not None:
                np.multiply(words, factor, out=words)


def _random(count: int) -> Words:
    return np.frombuffer(secrets.token_bytes(_WORD * count), np.uint64)


def _of_rows(hashes: Sequence[_Hash], columns: Sequence[pa.Array], rows: int, level: int = 0) -> list[Words]:
    """Hash in slices of about SLICE_BYTES, as the words of a slice take several times its memory."""
    if rows < 2 or sum(map(_bytes, columns)) <= SLICE_BYTES:
        return _of_slice(hashes, columns, rows, level)
    half = rows // 2
    one = _of_rows(hashes, [column[:half] for column in columns], half, level)
    two = _of_rows(hashes, [column[half:] for column in columns], rows - half, level)
    return [np.concatenate(both) for both in zip(one, two, strict=True)]


def _bytes(array: pa.Array) -> int:
    """The bytes of the array that become fewer when it is sliced: a dictionary does not."""
    return int(array.indices.nbytes if pa.types.is_dictionary(array.type) else array.nbytes)


def _of_slice(hashes: Sequence[_Hash], columns: Sequence[pa.Array], rows: int, level: int) -> list[Words]:
    sums = [np.full(rows, hash.seed) for hash in hashes]  # a hash that is zero adds nothing to what it is added to
    if not rows:  # arrays without values may lack buffers
        return sums
    spare = np.empty(rows, np.uint64)
    place = 0
    for column in columns:
        for words in _words(hashes, column, level + 1):
            shared = all(each is words[0] for each in words)
            high = words[0] >> _HALF
            for total, hash, each in zip(sums, hashes, words, strict=True):
                if not shared:
                    np.right_shift(each, _HALF, out=high)
                _add_products(total, each, high, hash.keys(level, place + 1)[:, place], spare)
            place += 1
    for total, hash in zip(sums, hashes, strict=True):
        hash.mix(total)
    return sums


def _add_products(total: Words, words: Words, high: Words, keys: Words, spare: Words) -> None:
    """Adds the products of the words and of their upper halves, `high`. `spare`: is written to."""
    np.multiply(words, keys[0], out=spare)
    np.add(total, spare, out=total)
    if high.max():
        np.multiply(high, keys[1], out=spare)
        np.add(total, spare, out=total)


def _words(hashes: Sequence[_Hash], array: pa.Array, level: int) -> Iterator[list[Words]]:
    """The words of each value, one after the other, which each of the hashes adds up. `level`: of texts and lists,
    whose elements are on the next one. The array has values."""
    type = array.type
    if pa.types.is_dictionary(type):
        yield from _of_dictionary(hashes, array, level)
    elif pa.types.is_struct(type):
        for field in array.flatten():
            yield from _words(hashes, field, level)
        yield [np.asarray(array.is_valid()).astype(np.uint64)] * len(hashes)
    elif pa.types.is_list(type):
        ends = np.asarray(array.offsets).astype(np.int64)
        elements = array.values.slice(ends[0], ends[-1] - ends[0])
        found = _of_rows(hashes, [elements], len(elements), level + 1)
        yield _with_nulls(hashes, array, _sequences(hashes, level, ends - ends[0], np.diff(ends), found))
    elif pa.types.is_string(type) or pa.types.is_binary(type):
        yield _with_nulls(hashes, array, _of_bytes(hashes, array, level))
    else:
        for word in _fixed(array):
            yield _with_nulls(hashes, array, [word] * len(hashes))


def _of_dictionary(hashes: Sequence[_Hash], array: pa.DictionaryArray, level: int) -> Iterator[list[Words]]:
    values, indices = array.dictionary, array.indices
    if not len(values):
        yield from _words(hashes, pa.nulls(len(array), array.type.value_type), level)
        return
    at = np.asarray(indices.fill_null(0) if indices.null_count else indices)
    for found in _words(hashes, values, level):
        yield _with_nulls(hashes, indices, [each[at] for each in found])


def _of_bytes(hashes: Sequence[_Hash], array: pa.Array, level: int) -> list[Words]:
    """The sums of texts and bytes, whose last word is filled up with zeros."""
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    lengths = np.diff(offsets).astype(np.int64)
    long = lengths > PIECE_BYTES
    counts = np.where(long, 0, -(-lengths // _WORD))
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    firsts = np.repeat(offsets[:-1] - _WORD * ends[:-1], counts) + _WORD * np.arange(ends[-1])
    words = _words_at(array.buffers()[2], firsts)
    some = counts > 0
    words[ends[1:][some] - 1] &= _TAILS[(lengths - _WORD * (counts - 1))[some]]
    # counts do not tell lengths
    found = _sequences(hashes, level, ends, lengths, [words] * len(hashes))
    for at in np.flatnonzero(long):
        sums = _of_pieces(hashes, array, int(offsets[at]), int(offsets[at + 1]), level)
        for each, one in zip(found, sums, strict=True):
            each[at] = one[0]
    return found


def _of_pieces(hashes: Sequence[_Hash], array: pa.Array, begin: int, end: int, level: int) -> list[Words]:
    """The sums of one long text, as the list of its pieces: their words and keys are fewer. One array of one value for
    each hash."""
    cuts = np.array([*range(begin, end, PIECE_BYTES), end], np.int32)
    pieces = pa.Array.from_buffers(pa.binary(), len(cuts) - 1, [None, pa.py_buffer(cuts), array.buffers()[2]])
    found = _of_rows(hashes, [pieces], len(pieces), level + 1)
    return _sequences(hashes, level, np.array([0, len(pieces)]), np.array([end - begin]), found)


def _sequences(
    hashes: Sequence[_Hash], level: int, ends: Numbers, lengths: Numbers, values: Sequence[Words]
) -> list[Words]:
    """The sum of each run of values, and of its length. `ends`: of the runs, after the begin of the first. `lengths`:
    of less than 2^32."""
    counts = np.diff(ends)
    places = np.arange(1, 1 + ends[-1]) - np.repeat(ends[:-1], counts)
    longest = int(counts.max(initial=0))
    found = []
    for hash, each in zip(hashes, values, strict=True):
        low, high = hash.keys(level, 1 + longest)
        products = low[places]
        products *= each
        upper = high[places]
        upper *= each >> _HALF
        products += upper
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(products, dtype=np.uint64)])
        found.append(sums[ends[1:]] - sums[ends[:-1]] + lengths.astype(np.uint64) * low[0])
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


def _words_at(data: pa.Buffer | None, firsts: Numbers) -> Words:
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
