"""The forms of `-o`: rows as a table, JSON, YAML or CSV. One writer each, for rows that come in parts.

             one answer (`document`)                      a stream (`lines`)
    table    aligned columns                              the same
    json     {"as_of": 7, "rows": [                       {"carrier": "UA", "flights": 58665}
              {"carrier": "UA", "flights": 58665}
             ]}
    yaml     as_of: 7                                     - carrier: UA
             rows:                                          flights: 58665
             - carrier: UA
               flights: 58665
    csv      carrier,flights                              the same
             UA,58665

Values are those of rows/values.py: text for what JSON would round. CSV goes to files as it is; on a terminal its
control characters are escaped. JSON and YAML escape them always, and all beyond ASCII with them.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from tidemark.errors import GatewayFailed
from tidemark_cli.output.rows import RowPrinter
from tidemark_cli.output.text import printable
from tidemark_cli.output.values import cell
from tidemark_cli.output.yaml_text import yaml_text
from tidemark_protocol.rows.csv import csv_line
from tidemark_protocol.rows.values import plain

Row = Sequence[Any]


class RowWriter(ABC):
    """Writes rows of Python values (rows/values.py). `end` follows the last row."""

    def __init__(self, names: Sequence[str], out: TextIO) -> None:
        self.names, self._out = list(names), out

    @abstractmethod
    def rows(self, rows: Sequence[Row]) -> None: ...

    def item(self, fields: Mapping[str, Any]) -> None:
        """Write something of a stream that is no row, where the form has a place for it."""
        return

    def end(self) -> None:
        """Write what follows the last row."""
        return


class _Table(RowWriter):
    def __init__(self, names: Sequence[str], types: Sequence[str], out: TextIO) -> None:
        super().__init__(names, out)
        self._printer, self._begun = RowPrinter(names, types, out), False

    def rows(self, rows: Sequence[Row]) -> None:
        self._begun = True
        self._printer.print([[cell(value) for value in row] for row in rows])

    def end(self) -> None:
        if not self._begun:
            self.rows([])


class _Csv(RowWriter):
    def __init__(self, names: Sequence[str], out: TextIO) -> None:
        super().__init__(names, out)
        self._terminal = out.isatty()
        self._line(self.names)

    def rows(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._line(row)

    def _line(self, row: Row) -> None:
        line = csv_line(row)
        self._out.write(printable(line[:-2]) + "\r\n" if self._terminal else line)


class _Objects(RowWriter):
    """Rows as objects. Raises GatewayFailed where two columns have one name."""

    def __init__(self, names: Sequence[str], out: TextIO) -> None:
        super().__init__(names, out)
        if twice := next((name for name in self.names if self.names.count(name) > 1), None):
            raise GatewayFailed(
                f"an object has one value for a name, and two columns are called {twice}: rename one with AS"
            )

    def rows(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self.item(dict(zip(self.names, row, strict=True)))


class _JsonLines(_Objects):
    def item(self, fields: Mapping[str, Any]) -> None:
        print(json.dumps(plain(dict(fields))), file=self._out)


class _YamlItems(_Objects):
    def item(self, fields: Mapping[str, Any]) -> None:
        self._out.write(yaml_text([plain(dict(fields))]))


class _JsonDocument(_Objects):
    def __init__(self, names: Sequence[str], out: TextIO, head: Mapping[str, Any]) -> None:
        super().__init__(names, out)
        print(json.dumps(head)[:-1] + ', "rows": [', end="", file=out)
        self._separator = "\n"

    def item(self, fields: Mapping[str, Any]) -> None:
        print(self._separator, json.dumps(plain(dict(fields))), sep="", end="", file=self._out)
        self._separator = ",\n"

    def end(self) -> None:
        print("\n]}", file=self._out)


class _YamlDocument(_Objects):
    def __init__(self, names: Sequence[str], out: TextIO, head: Mapping[str, Any]) -> None:
        super().__init__(names, out)
        out.write(yaml_text(dict(head)))
        self._begun = False

    def item(self, fields: Mapping[str, Any]) -> None:
        self._out.write(("" if self._begun else "rows:\n") + yaml_text([plain(dict(fields))]))
        self._begun = True

    def end(self) -> None:
        if not self._begun:
            self._out.write("rows: []\n")


def document(
    output: str, names: Sequence[str], types: Sequence[str], head: Mapping[str, Any], out: TextIO
) -> RowWriter:
    """The writer of one answer. `head`: what an object says beside its rows."""
    match output:
        case "json":
            return _JsonDocument(names, out, head)
        case "yaml":
            return _YamlDocument(names, out, head)
    return _flat(output, names, types, out)


def lines(output: str, names: Sequence[str], types: Sequence[str], out: TextIO) -> RowWriter:
    """The writer of a stream."""
    match output:
        case "json":
            return _JsonLines(names, out)
        case "yaml":
            return _YamlItems(names, out)
    return _flat(output, names, types, out)


def _flat(output: str, names: Sequence[str], types: Sequence[str], out: TextIO) -> RowWriter:
    return _Csv(names, out) if output == "csv" else _Table(names, types, out)


def print_record(output: str, fields: Mapping[str, Any], text: str, out: TextIO) -> None:
    """Print the outcome of a command: `text` for people, else an object, or a header and a row."""
    match output:
        case "json":
            print(json.dumps(plain(dict(fields))), file=out)
        case "yaml":
            out.write(yaml_text(plain(dict(fields))))
        case "csv":
            _Csv(list(fields), out).rows([list(fields.values())])
        case _:
            print(text, file=out)
