"""The list that a call gives: once, or again and again with `--watch`.

    once                               a table, or the reply in another form
    again, on a terminal, as a table   live (output/live.py)
    again, else                        each row that is new or has changed since it was printed

A gateway that is away, such as one that is restarted, is found anew once it is back. The first call must succeed.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import Message

from tidemark.errors import Error, is_passing
from tidemark.gateway.channel import call_errors, connected
from tidemark.gateway.discovery import Gateway
from tidemark.link import Link
from tidemark_cli.output import live
from tidemark_cli.output.formats import lines
from tidemark_cli.output.live import ScreenFrame, live_table
from tidemark_cli.output.messages import as_object, fields, print_reply, values
from tidemark_cli.output.rows import RowPrinter, print_table
from tidemark_cli.output.text import printable_lines

PAUSE_SECONDS = 2.0
_PERCENT, _BAR = re.compile(r"(\d{1,3})%"), 10
Cells = Sequence[str]
Call = Callable[[Any, Any], Message]
"""A stub and the metadata of a call; returns its reply."""


@dataclass(frozen=True)
class ListingFormat:
    """The form in which the messages of field `rows` of a reply are shown. `key`: the fields that tell a row from
    others. `namespace`: the namespace whose rows are listed; empty: the rows of all, each with its namespace."""

    rows: str
    columns: Cells
    cells: Callable[[Any, Any], list[str]]
    """The line of a table, of a message and its reply."""
    key: Sequence[str]
    namespace: str
    styles: Mapping[str, str] = field(default_factory=dict)
    clocked: frozenset[str] = frozenset()
    """Names of cells that change with the clock. A row in which nothing else changed is not printed again."""

    @property
    def names(self) -> Cells:
        return self.columns if self.namespace else ("NAMESPACE", *self.columns)

    def table(self, reply: Message) -> list[Cells]:
        found = [(each.namespace, self.cells(each, reply)) for each in getattr(reply, self.rows)]
        return [cells if self.namespace else [of, *cells] for of, cells in found]


def replies(find: Callable[[], Gateway], call: Call) -> Iterator[Message | Error]:
    """The replies, and the errors of calls that are made again. Raises Error where a call is refused, or is the first
    one."""
    link, answered = Link(find), False
    try:
        while True:
            try:
                stub, gateway = link.stub(), link.gateway()
                with call_errors(gateway):
                    outcome: Message | Error = call(stub, gateway.metadata)
                answered = True
            except Error as error:
                if not (answered and is_passing(error)):
                    raise
                link.forget()
                outcome = error
            yield outcome
            time.sleep(PAUSE_SECONDS)
    finally:
        link.close()


def print_listing(
    find: Callable[[], Gateway], call: Call, listing: ListingFormat, output: str, *, watched: bool
) -> None:
    """Print what the call lists, once or until the command is ended. Raises Error where a call is refused."""
    if watched:
        watch(find, call, listing, output)
        return
    gateway = find()
    with connected(gateway) as stub:
        reply = call(stub, gateway.metadata)
    if output != "table":
        print_reply(output, reply, listing.rows)
    elif table := listing.table(reply):
        print_table(listing.names, table, listing.styles, sys.stdout)
    else:
        where = f" in namespace {listing.namespace}" if listing.namespace else ""
        print(f"No {listing.rows} found{where}.")


def watch(find: Callable[[], Gateway], call: Call, listing: ListingFormat, output: str) -> None:
    """Shows what the calls list, until the command is ended. Raises Error where a call is refused."""
    if output == "table" and live.is_possible():
        _watch_live(replies(find, call), listing)
    else:
        _print_changes(replies(find, call), listing, output)


def _watch_live(outcomes: Iterator[Message | Error], listing: ListingFormat) -> None:
    shown, lock = _Shown(), threading.Lock()

    def frame(height: int) -> ScreenFrame:
        with lock:
            table, note = shown.table, shown.note
        more = f"{len(table) - height} more rows" if len(table) > height else ""
        return ScreenFrame(
            listing.names,
            [[*map(_with_bar, row)] for row in table[:height]],
            ", ".join(filter(None, (more, note))),
            listing.styles,
        )

    first = next(outcomes)
    assert isinstance(first, Message)
    shown.table = listing.table(first)
    with live_table(frame) as changed:
        changed()
        for outcome in outcomes:
            with lock:
                if isinstance(outcome, Message):
                    shown.table, shown.note = listing.table(outcome), ""
                else:
                    shown.note = f"trying again: {outcome}"
            changed()


def _with_bar(cell: str) -> str:
    """A cell that is a percentage, as of a hydration, with a bar."""
    found = _PERCENT.fullmatch(cell)
    if found is None:
        return cell
    full = min(int(found[1]), 100) * _BAR // 100
    return f"{'█' * full}{'░' * (_BAR - full)} {cell}"


@dataclass
class _Shown:
    table: list[Cells] = field(default_factory=list)
    note: str = ""


def _print_changes(outcomes: Iterator[Message | Error], listing: ListingFormat, output: str) -> None:
    """Prints each row that is not as it was printed last."""
    printer = _Changes(listing, output)
    noted = ""
    for outcome in outcomes:
        if isinstance(outcome, Message):
            printer.reply(outcome)
            noted = ""
        elif (note := f"trying again: {printable_lines(str(outcome))}") != noted:
            print(note, file=sys.stderr)
            noted = note
        sys.stdout.flush()


class _Changes:
    def __init__(self, listing: ListingFormat, output: str) -> None:
        self._listing, self._output = listing, output
        self._printed: dict[tuple[Any, ...], Any] = {}
        self._writer: Any = None

    def reply(self, reply: Message) -> None:
        """Print its new and changed rows; rows that are gone are forgotten."""
        messages, is_table = getattr(reply, self._listing.rows), self._output == "table"
        rows: Sequence[Any] = self._listing.table(reply) if is_table else messages
        keys = [tuple(values(message, self._listing.key)) for message in messages]
        shown = [self._without_clock(row) if is_table else row.SerializeToString(deterministic=True) for row in rows]
        changed = [row for key, row, now in zip(keys, rows, shown, strict=True) if self._printed.get(key) != now]
        self._printed = dict(zip(keys, shown, strict=True))
        if is_table:
            self._table(changed)
        else:
            self._messages(reply, changed)

    def _without_clock(self, row: Cells) -> list[str]:
        return [cell for name, cell in zip(self._listing.names, row, strict=True) if name not in self._listing.clocked]

    def _table(self, rows: list[Cells]) -> None:
        if self._writer is None:
            names = self._listing.names
            self._writer = RowPrinter(names, [""] * len(names), sys.stdout, self._listing.styles)
        self._writer.print(rows)

    def _messages(self, reply: Message, messages: list[Message]) -> None:
        names = fields(reply, self._listing.rows)
        if self._writer is None:
            self._writer = lines(self._output, names, [], sys.stdout)
        for message in messages:
            if self._output == "csv":
                self._writer.rows([values(message, names)])
            else:
                self._writer.item(as_object(message))
