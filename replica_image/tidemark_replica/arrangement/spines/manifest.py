"""Manifests: the immutable value that says what an arrangement is, and up to which time.

    Manifest(arrangement, layout, lower, upper, since, batches = oldest ... newest)

The driver passes manifests to tasks as JSON. A task that holds one can read that version of the arrangement as long as
the store keeps its files.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NewType

from tidemark_replica.arrangement.batches.batch import BatchRef, batches_from_json
from tidemark_replica.arrangement.errors import OutOfFrontier, StaleManifest
from tidemark_replica.arrangement.rows.layout import Layout

ArrangementId = NewType("ArrangementId", str)

FORMAT = 3


@dataclass(frozen=True)
class Manifest:
    """One version of an arrangement: complete for times in [since, upper)."""

    arrangement: ArrangementId
    layout: Layout
    lower: int
    upper: int
    since: int
    batches: tuple[BatchRef, ...] = ()

    def __post_init__(self) -> None:
        if "/" in self.arrangement or self.arrangement.startswith("."):
            raise ValueError(f"arrangement id {self.arrangement!r} cannot be the name of a directory")

    @staticmethod
    def empty(arrangement: ArrangementId, layout: Layout, lower: int) -> "Manifest":
        """An arrangement before its first step, which begins at `lower`."""
        return Manifest(arrangement, layout, lower, lower, lower)

    @property
    def rows(self) -> int:
        return sum(b.rows for b in self.batches)

    @property
    def bytes(self) -> int:
        return sum(b.bytes for b in self.batches)

    @property
    def files(self) -> frozenset[str]:
        return frozenset(b.file for b in self.batches)

    def check_readable(self, as_of: int) -> None:
        """Raise OutOfFrontier unless since <= as_of < upper."""
        if not self.since <= as_of < self.upper:
            raise OutOfFrontier(
                f"arrangement {self.arrangement} is readable in [{self.since}, {self.upper}), not at {as_of}"
            )

    def append(self, batches: Iterable[BatchRef], lower: int, upper: int) -> "Manifest":
        """The arrangement after a step over [lower, upper) that wrote `batches`. Raises StaleManifest."""
        if lower != self.upper or upper <= lower:
            raise StaleManifest(
                f"arrangement {self.arrangement} is complete up to {self.upper}: it takes no step [{lower}, {upper})"
            )
        return self._as(upper, self.since, (*self.batches, *batches))

    def allow_compaction(self, since: int) -> "Manifest":
        """The arrangement with at least this since; a since never goes back."""
        return self if since <= self.since else self._as(self.upper, since, self.batches)

    def _as(self, upper: int, since: int, batches: tuple[BatchRef, ...]) -> "Manifest":
        """A changed copy. Several times faster than `replace`; every step changes every manifest."""
        return Manifest(self.arrangement, self.layout, self.lower, upper, since, batches)

    def to_json(self) -> dict[str, Any]:
        """The manifest as JSON values, which `from_json` reads back."""
        return {
            "format": FORMAT,
            "arrangement": self.arrangement,
            "layout": self.layout.text,
            "lower": self.lower,
            "upper": self.upper,
            "since": self.since,
            "batches": self.batches,
        }

    @staticmethod
    def from_json(value: dict[str, Any]) -> "Manifest":
        if value["format"] != FORMAT:
            raise StaleManifest(f"a manifest of format {value['format']}; this replica reads format {FORMAT}")
        return Manifest(
            ArrangementId(value["arrangement"]),
            Layout.from_text(value["layout"]),
            value["lower"],
            value["upper"],
            value["since"],
            batches_from_json(value["batches"]),
        )
