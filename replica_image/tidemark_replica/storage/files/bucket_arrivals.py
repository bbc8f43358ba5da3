"""New objects of a bucket: a scan in the order of names, which goes on where it stopped.

    order ""      scan: a ... z, pause, a ... z, pause       finds each new object; a scan costs all that is there
    order name    a ... m, m ..., m ... p, p ...             a listing begins after the last name; it costs what is new

A look lists at most PAGES_PER_LOOK pages, and stops where it has `max_files_per_tick` new objects, or TICK_BYTES of
them. After a scan of n pages it pauses for n times PAGE_SECONDS, so a table costs a request each PAGE_SECONDS, whatever
the bucket holds. Objects are there whole, so they are bound as soon as they are listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from itertools import takewhile
from time import monotonic

from tidemark_protocol.plan.ingestion import FilesTable
from tidemark_replica.storage.files.bucket import Bucket, version, with_bytes
from tidemark_replica.storage.files.listing import Arrived, BoundFiles, FileVersion, is_candidate

PAGES_PER_LOOK = 20
PAGE_SECONDS = 1.0
BY_NAME = "name"


class BucketArrivals:
    """The arrivals of a table whose files are in a bucket."""

    def __init__(self, table: FilesTable, bucket: Bucket) -> None:
        self._table, self._reader = table, bucket.reader
        self._after, self._newest = "", ""
        """The place of the scan, perhaps behind a folder, and the last name before it: of an object with bytes."""
        self._pages, self._due = 0, 0.0
        self._changed, self._changed_before = 0, 0
        """The numbers of changed files in this scan so far, and in the scan before."""

    def resume(self, bound: Iterable[FileVersion]) -> None:
        self._newest = max((file.name for file in bound), default="") if self._table.order == BY_NAME else ""
        self._after = self._newest
        self._pages, self._due, self._changed = 0, 0.0, 0

    def look(self, known: BoundFiles, released: Mapping[str, FileVersion]) -> Arrived:
        arrived = Arrived()
        if monotonic() >= self._due:
            self._scan(arrived, known, released)
        arrived.changed = max(self._changed, self._changed_before)
        return arrived

    def confirm(self, bound: Iterable[FileVersion]) -> None:
        """The scan is past them."""

    def _scan(self, arrived: Arrived, known: BoundFiles, released: Mapping[str, FileVersion]) -> None:
        most = self._table.max_files_per_tick
        for number, (page, behind) in enumerate(self._reader.pages(self._after), 1):
            self._pages += 1
            page = with_bytes(page)
            candidates = [version(each) for each in page if is_candidate(each.name, self._table.pattern)]
            unbound, changed = known.split(candidates)
            new = [file for file in unbound if released.get(file.name) != file]
            taken = list(takewhile(partial(arrived.add, at_most=most), new))
            full = len(taken) < len(new) or len(arrived.files) == most
            if not full:
                self._newest, self._after = page[-1].name if page else self._newest, behind
            elif taken:
                self._newest = self._after = taken[-1].name
            arrived.unbound = int(full)  # at least one, perhaps: the scan has not come to the end
            if full:  # the next look lists the candidates behind this place again
                changed = known.split([file for file in candidates if file.name <= self._after])[1]
            self._changed += changed
            if full or number == PAGES_PER_LOOK:
                return  # the scan goes on at the next tick
        self._due = monotonic() + max(self._pages, 1) * PAGE_SECONDS
        self._changed_before, self._changed, self._pages = self._changed, 0, 0
        # by name, not behind the last folder: the next name may be before that
        self._after = self._newest if self._table.order == BY_NAME else ""
