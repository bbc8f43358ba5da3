"""The options of COPY, and the lines that they make in text and csv."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tidemark_pgwire.errors import FEATURE_NOT_SUPPORTED, INVALID_PARAMETER, SYNTAX_ERROR, WireError
from tidemark_pgwire.statements.words import Words

TEXT, CSV, BINARY = "text", "csv", "binary"
_ESCAPES = {
    b"\\": b"\\\\", b"\b": b"\\b", b"\f": b"\\f", b"\n": b"\\n", b"\r": b"\\r", b"\t": b"\\t", b"\v": b"\\v",
}  # fmt: skip
_ESCAPED = re.compile(rb"[\\\b\f\n\r\t\v]")


@dataclass(frozen=True)
class CopyOptions:
    """`format`: text, csv or binary. `delimiter` empty, `null` None: the default of the format."""

    format: str = TEXT
    header: bool = False
    delimiter: str = ""
    null: str | None = None

    @property
    def csv(self) -> bool:
        return self.format == CSV

    @property
    def binary(self) -> bool:
        return self.format == BINARY

    @property
    def separator(self) -> str:
        return self.delimiter or ("," if self.csv else "\t")

    @property
    def nothing(self) -> str:
        """What stands for NULL."""
        return self.null if self.null is not None else "" if self.csv else "\\N"

    def line(self, values: tuple[bytes | None, ...]) -> bytes:
        """The line of a row."""
        delimiter, null = self.separator.encode(), self.nothing.encode()
        if self.csv:
            cells = [null if each is None else _csv(each, delimiter, null) for each in values]
            if cells == [b"\\."]:
                cells = [b'"\\."']
        else:
            cells = [null if each is None else _escaped(each, delimiter) for each in values]
        return delimiter.join(cells) + b"\n"


def _escaped(value: bytes, delimiter: bytes) -> bytes:
    found = _ESCAPED.sub(lambda mark: _ESCAPES[mark[0]], value)
    return found if delimiter == b"\t" else found.replace(delimiter, b"\\" + delimiter)


def _csv(value: bytes, delimiter: bytes, null: bytes) -> bytes:
    if value == null or any(mark in value for mark in (delimiter, b'"', b"\n", b"\r")):
        return b'"' + value.replace(b'"', b'""') + b'"'
    return value


def parse_copy_options(words: Words) -> CopyOptions:
    """`WITH (FORMAT csv, HEADER)` or the older `CSV HEADER`. Raises WireError."""
    format, header, delimiter, null = TEXT, False, "", None
    words.take("WITH")
    listed = words.take_mark("(")
    while words.peek().kind != "end" and not (listed and words.take_mark(")")):
        token = words.next()
        match token.word:
            case "FORMAT" if listed:
                format = _format(words)
            case "CSV" | "BINARY" if not listed:
                format = token.word.lower()
            case "HEADER":
                if words.peek().word == "MATCH":
                    raise WireError(FEATURE_NOT_SUPPORTED, "COPY has no HEADER MATCH: HEADER leaves the first line out")
                header = not (words.take("FALSE") or words.take("OFF"))
                words.take("TRUE") or words.take("ON")
            case "DELIMITER" | "DELIMITERS":
                words.take("AS")
                delimiter = _text(words)
            case "NULL":
                words.take("AS")
                null = _text(words)
            case "ENCODING":
                if _text(words).upper().replace("-", "") != "UTF8":
                    raise WireError(FEATURE_NOT_SUPPORTED, "the encoding is UTF8")
            case _:
                raise words.wrong(token)
        words.take_mark(",")
    if delimiter and (len(delimiter.encode()) != 1 or delimiter in '\r\n\\."' or delimiter.isalnum()):
        raise WireError(INVALID_PARAMETER, "COPY delimiter must be a single one-byte character, and no letter or digit")
    if null is not None and set(null) & {"\r", "\n"}:
        raise WireError(INVALID_PARAMETER, "COPY null representation cannot use newline or carriage return")
    options = CopyOptions(format, header, delimiter, null)
    if options.binary:
        _require_none_of_lines(options)
    return options


def _require_none_of_lines(options: CopyOptions) -> None:
    """Raises WireError where an option is of lines, which the binary format has none of."""
    if options.delimiter or options.null is not None:
        name = "DELIMITER" if options.delimiter else "NULL"
        raise WireError(SYNTAX_ERROR, f"cannot specify {name} in BINARY mode")
    if options.header:
        raise WireError(FEATURE_NOT_SUPPORTED, "cannot specify HEADER in BINARY mode")


def _format(words: Words) -> str:
    name = words.name().lower()
    if name not in (TEXT, CSV, BINARY):
        raise WireError(INVALID_PARAMETER, f'COPY format "{name}" not recognized')
    return name


def _text(words: Words) -> str:
    token = words.next()
    if token.kind != "text":
        raise words.wrong(token)
    if token.text[0] in "eE":
        return token.text[2:-1].encode().decode("unicode_escape")
    return token.value
