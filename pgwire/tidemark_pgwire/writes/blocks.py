"""The data of COPY FROM as texts: cut into blocks where rows end, checked, and parsed by Arrow.

    bytes ──► BLOCK_BYTES and more ──► cut after the last whole row ──► checked ──► texts of each column

Where Arrow and PostgreSQL would read other values, the data are refused, with the line: a quote within a value of csv,
a carriage return of its own, an empty line, what follows the end mark.
"""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from tidemark_pgwire.errors import BAD_COPY, FEATURE_NOT_SUPPORTED, LIMIT_EXCEEDED, NOT_IN_REPERTOIRE, WireError
from tidemark_pgwire.statements.copy_options import CopyOptions, check_columns

BLOCK_BYTES = 1 << 20
ROW_BYTES_MAX = 4 << 20
_NEWLINE, _RETURN = 10, 13
_END = re.compile(rb"(?:^|(?<=\n))\\\.\r?(?:\n|$)")
_END_OF_CSV = re.compile(rb"(?:^|(?<=\n))\\\.\r?\n")  # `\.` without a newline is a value
_LONE_RETURN = re.compile(rb"\r(?!\n)")
_ESCAPED_NEWLINE = re.compile(rb"(?<!\\)(?:\\\\)*\\\r?\n")
_ROW = re.compile(r"Row #(\d+)")
_DELIMITER, _BACKSLASH = "\0D", "\0B"
"""Stand for an escaped delimiter and an escaped backslash while a block is parsed: no text has NUL."""
_ESCAPES = (("\\b", "\b"), ("\\f", "\f"), ("\\n", "\n"), ("\\r", "\r"), ("\\t", "\t"), ("\\v", "\v"))
Texts = list[pa.Array]


class Blocks:
    """The data of one COPY. `name`: of the table; `columns`: their names, in order. `rows`: the number of
    parsed rows; `one_line_each`: no parsed value has a newline in it, so the number of a row tells its line."""

    def __init__(self, name: str, columns: tuple[str, ...], options: CopyOptions) -> None:
        self._name, self._columns, self._options = name, columns, options
        check_columns("FORCE_NOT_NULL", options.force_not_null, columns)
        check_columns("FORCE_NULL", options.force_null, columns)
        self._end = _END_OF_CSV if options.csv else _END
        self._quote = options.marks[0].encode()[0]
        self._rest, self._wanted = bytearray(), BLOCK_BYTES
        self._line, self._header = 1, options.header
        self.rows, self.one_line_each = 0, True

    def add(self, data: bytes) -> None:
        self._rest += data

    @property
    def is_full(self) -> bool:
        return len(self._rest) >= self._wanted

    def take(self) -> Texts | None:
        """The whole rows so far; None: there are none. Raises WireError."""
        end = self._complete_size()
        if end == 0:
            if len(self._rest) > ROW_BYTES_MAX:
                raise self._refused(LIMIT_EXCEEDED, f"a row of COPY has at most {ROW_BYTES_MAX >> 20} MiB", 0)
            self._wanted = min(2 * len(self._rest), ROW_BYTES_MAX + 1)
            return None
        block, self._wanted = bytes(self._rest[:end]), BLOCK_BYTES
        del self._rest[:end]
        if self._end.search(block):
            self._rest[:0] = block  # whether data follow the end mark is known at the end
            self._wanted = 2 * len(self._rest)
            if len(self._rest) > 2 * ROW_BYTES_MAX:
                raise self._refused(BAD_COPY, "end-of-copy marker is not the last line", 0)
            return None
        return self._parsed(block)

    def take_last(self) -> Texts | None:
        """The texts of the rows that are left, once all data came. Raises as `take`."""
        block = bytes(self._rest)
        self._rest.clear()
        if (marked := self._end.search(block)) is not None:
            if marked.end() < len(block):
                raise self._refused(BAD_COPY, "end-of-copy marker is not the last line", marked.start(), block)
            block = block[: marked.start()]
        if not block:
            return None
        return self._parsed(block if block.endswith(b"\n") else block + b"\n")

    def line_of(self, row: int) -> int:
        """The line of a row, from 1, where `one_line_each`."""
        return row + self._options.header

    # --- where rows end ---

    def _complete_size(self) -> int:
        """The number of bytes of the complete rows at the begin of the rest."""
        if not self._options.csv:
            return self._rest.rfind(b"\n") + 1
        ends = _row_ends(_bytes(bytes(self._rest)), self._quote)
        return int(ends[-1].as_py()) + 1 if len(ends) else 0

    # --- one block ---

    def _parsed(self, block: bytes) -> Texts:
        if (at := block.find(b"\0")) >= 0:
            raise self._refused(NOT_IN_REPERTOIRE, 'invalid byte sequence for encoding "UTF8": 0x00', at, block)
        if block.startswith(codecs.BOM_UTF8):  # Arrow would leave it out
            raise self._refused(BAD_COPY, "a row begins with a byte order mark: leave it out", 0)
        if not self._options.csv:
            block = self._without_escaped_delimiters(block)
        data = _bytes(block)
        ends = _row_ends(data, self._quote) if self._options.csv else _true_positions(pc.equal(data, _NEWLINE))
        self._check(block, data, ends)
        self.one_line_each &= len(ends) == block.count(b"\n")
        table = self._table(block, ends)
        columns = [column.combine_chunks() for column in table.columns]
        if not self._options.csv:
            columns = [self._unescaped(column, block, ends) for column in columns]
        self._line += block.count(b"\n")
        self._header = False
        self.rows += table.num_rows
        return columns

    def _without_escaped_delimiters(self, block: bytes) -> bytes:
        """Each escaped delimiter of the text format as a mark, so that Arrow divides at the others alone."""
        delimiter = self._options.separator.encode()
        if b"\\" + delimiter not in block:
            return block
        return re.sub(rb"(?<!\\)((?:\\\\)*)\\" + re.escape(delimiter), rb"\1" + _DELIMITER.encode(), block)

    def _check(self, block: bytes, data: pa.Array, ends: pa.Array) -> None:
        if len(ends) == 0 or ends[-1].as_py() + 1 != len(block):
            raise self._refused(BAD_COPY, "unterminated CSV quoted field", len(block) - 1, block)
        if len(self._columns) > 1 and (at := _empty_row(data, ends)) >= 0:
            raise self._refused(BAD_COPY, f'missing data for column "{self._columns[1]}"', at, block)
        if self._options.csv:
            if (at := _misplaced_quote(data, self._options.separator.encode()[0], self._quote)) >= 0:
                raise self._refused(BAD_COPY, "a quote of CSV is within a value, and not around it", at, block)
        elif (escaped := _ESCAPED_NEWLINE.search(block)) is not None:
            raise self._refused(FEATURE_NOT_SUPPORTED, "write a newline in a value as \\n", escaped.start(), block)
        if (at := self._lone_return(block, data)) >= 0:
            raise self._refused(BAD_COPY, "a carriage return is not before a newline: write \\r, or quotes", at, block)

    def _lone_return(self, block: bytes, data: pa.Array) -> int:
        """Where one is outside of quotes; -1: there is none."""
        if (found := _LONE_RETURN.search(block)) is None or not self._options.csv:
            return -1 if found is None else found.start()
        lone = pc.and_(pc.equal(data[:-1], _RETURN), pc.not_equal(data[1:], _NEWLINE))
        return _first(_true_positions(pc.and_not(lone, _quoted(data, self._quote)[:-1])))

    def _table(self, block: bytes, ends: pa.Array) -> pa.Table:
        wrong = list[Any]()

        def note(row: Any) -> str:
            wrong.append(row)
            return "error"

        csv = self._options.csv
        names = [str(at) for at in range(len(self._columns))]
        read = pa_csv.ReadOptions(
            column_names=names, use_threads=False, block_size=len(block) + 1, skip_rows_after_names=int(self._header)
        )
        parse = pa_csv.ParseOptions(
            delimiter=self._options.separator,
            quote_char=self._options.marks[0] if csv else False,
            escape_char=False,
            newlines_in_values=csv,
            ignore_empty_lines=False,
            invalid_row_handler=note,
        )
        columns: dict[str, pa.ChunkedArray] = {}
        try:
            for group, nulls in self._nulls(names):
                convert = pa_csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    null_values=[self._options.nothing],
                    include_columns=group,
                    **nulls,
                )
                found = pa_csv.read_csv(io.BytesIO(block), read, parse, convert)
                columns |= dict(zip(found.column_names, found.columns, strict=True))
        except pa.ArrowInvalid as error:
            raise self._malformed(error, wrong, block, ends) from None
        return pa.table([columns[name] for name in names], names)

    def _nulls(self, names: list[str]) -> Iterator[tuple[list[str], dict[str, bool]]]:
        """The columns that Arrow reads at once, with what may be NULL in them: as it is one option of a reading."""
        kinds = {"force_null": (True, True), "force_not_null": (False, False), "": (True, False)}
        for kind, (strings, quoted) in kinds.items():
            found = [name for name, column in zip(names, self._columns, strict=True) if self._kind(column) == kind]
            if found:
                yield found, {"strings_can_be_null": strings, "quoted_strings_can_be_null": quoted}

    def _kind(self, column: str) -> str:
        if column in self._options.force_null:
            return "force_null"
        return "force_not_null" if column in self._options.force_not_null else ""

    def _malformed(self, error: pa.ArrowInvalid, wrong: list[Any], block: bytes, ends: pa.Array) -> WireError:
        if wrong:
            few, row = wrong[0].actual_columns < len(self._columns), wrong[0].number
            missing = self._columns[wrong[0].actual_columns] if few else ""
            text = f'missing data for column "{missing}"' if few else "extra data after last expected column"
            return self._refused(BAD_COPY, text, _start(ends, row), block)
        found = _ROW.search(str(error))
        at = _start(ends, int(found[1])) if found else 0
        if "UTF8" in str(error):
            return self._refused(NOT_IN_REPERTOIRE, 'invalid byte sequence for encoding "UTF8"', at, block)
        return self._refused(BAD_COPY, " ".join(str(error).split())[:200], at, block)

    def _unescaped(self, texts: pa.Array, block: bytes, ends: pa.Array) -> pa.Array:
        """The text format's \\t, \\n, \\\\ ...; another character after a backslash is itself."""
        if pc.any(pc.match_substring(texts, "\\")).as_py():
            texts = pc.replace_substring(texts, "\\\\", _BACKSLASH)
            if len(coded := _true_positions(pc.match_substring_regex(texts, r"\\[0-7x.]").fill_null(False))):
                at = _start(ends, coded[0].as_py() + 1 + self._header)
                raise self._refused(
                    FEATURE_NOT_SUPPORTED,
                    "COPY takes no octal and hexadecimal escapes, and \\. on a line of its own",
                    at,
                    block,
                )
            for escape, character in _ESCAPES:
                texts = pc.replace_substring(texts, escape, character)
            texts = pc.replace_substring_regex(texts, r"(?s)\\(.)", r"\1")
        if pc.any(pc.match_substring(texts, "\0")).as_py():
            texts = pc.replace_substring(texts, _DELIMITER, self._options.separator)
            texts = pc.replace_substring(texts, _BACKSLASH, "\\")
        return texts

    # --- errors ---

    def _refused(self, sqlstate: str, text: str, at: int, block: bytes = b"") -> WireError:
        """`at`: of a character in the block."""
        line = self._line + block.count(b"\n", 0, at)
        return WireError(sqlstate, f"{text} (line {line})", where=f"COPY {self._name}, line {line}")


def _bytes(block: bytes | bytearray) -> pa.Array:
    return pa.Array.from_buffers(pa.uint8(), len(block), [None, pa.py_buffer(block)])


def _true_positions(mask: pa.Array) -> pa.Array:
    """The positions at which the mask is true, as int64."""
    return pc.indices_nonzero(mask).cast(pa.int64())


def _quoted(data: pa.Array, quote: int) -> pa.Array:
    """Whether each byte is after an odd number of quotes."""
    odd = pa.scalar(1, pa.uint8())  # a sum that wraps is as odd as it was
    return pc.equal(pc.bit_wise_and(pc.cumulative_sum(pc.equal(data, quote).cast(pa.uint8())), odd), odd)


def _row_ends(data: pa.Array, quote: int) -> pa.Array:
    """The newlines of csv that end rows."""
    return _true_positions(pc.and_not(pc.equal(data, _NEWLINE), _quoted(data, quote)))


def _start(ends: pa.Array, row: int) -> int:
    """Where a row begins, from 1."""
    return ends[row - 2].as_py() + 1 if 1 < row <= len(ends) + 1 else 0


def _empty_row(data: pa.Array, ends: pa.Array) -> int:
    """Where the first empty row begins; -1: there is none."""
    starts = pa.concat_arrays([pa.array([0], pa.int64()), pc.add(ends[:-1], 1)])
    sizes = pc.subtract(ends, starts)
    returned = pc.and_(pc.equal(sizes, 1), pc.equal(data.take(starts), _RETURN))
    return _first(starts.filter(pc.or_(pc.equal(sizes, 0), returned)))


def _misplaced_quote(data: pa.Array, delimiter: int, quote: int) -> int:
    """Where PostgreSQL would take a quote that Arrow takes as a character, or the other way round; -1: nowhere."""
    at = _true_positions(pc.equal(data, quote))
    opens, closes = at[0::2], at[1::2]
    opens = opens.filter(pc.greater(opens, 0))
    around = pa.array([delimiter, _NEWLINE, quote], pa.uint8())
    after = pa.array([delimiter, _NEWLINE, _RETURN, quote], pa.uint8())
    wrong_open = opens.filter(pc.invert(pc.is_in(data.take(pc.subtract(opens, 1)), around)))
    wrong_close = closes.filter(pc.invert(pc.is_in(data.take(pc.add(closes, 1)), after)))
    return _first(pa.concat_arrays([wrong_open, wrong_close]))


def _first(places: pa.Array) -> int:
    return pc.min(places).as_py() if len(places) else -1
