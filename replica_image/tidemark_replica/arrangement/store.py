"""The arrangement store: the current manifests and the pins of one incarnation, hence the files in use.

    <directory>/<arrangement>/<step>-<attempt>-<n>.arrow

    install ──> current manifest ──commit──> newer manifest         every current manifest and every pin
                     └──pin──> held by a step, an importer, a peek  is a user of its files;
                                                                    a file without users is deleted

State is scratch: it ends with the incarnation, and the next one hydrates anew. So nothing is synced, and the files of a
process that was killed go with its scratch folder (`process/scratch.py`).

The counts of users, and the bytes of all files, live in the driver, under one lock. Tasks only write files under their
step's name. `sweep` deletes the files that steps left without committing them (failed, cancelled and speculative
attempts).

A change of users is decided in memory, at once or not at all; files are deleted afterwards, on a thread of their own
(`file_deleter`) unless the store waits for the disk. A file that cannot be deleted has no users and is tried again by
the next sweep, so no change to a manifest fails because of a file. Nothing touches the disk while it holds the lock.
"""

import logging
import shutil
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from pathlib import Path

from tidemark_replica.arrangement.batches.batch import BatchRef
from tidemark_replica.arrangement.batches.file_deleter import FileDeleter, Removal
from tidemark_replica.arrangement.errors import DiskLimitExceeded, StaleManifest, UnknownArrangement
from tidemark_replica.arrangement.spines.manifest import ArrangementId, Manifest
from tidemark_replica.arrangement.spines.spine import Merge
from tidemark_replica.arrangement.step import FULL, LITTLE_BYTES, MUCH_BYTES, SCARCE, StepId

LOG = logging.getLogger(__name__)


class ArrangementStore:
    """The arrangements of one incarnation of a replica."""

    def __init__(self, directory: Path, *, limit_bytes: int | None = None, waits_for_disk: bool = True) -> None:
        """`directory`: no other store's. `limit_bytes`: the bytes that all files may have (None: any number).
        `waits_for_disk`: delete unused files before a method returns, not on a thread.
        """
        self._limit = limit_bytes
        self._deleter = None if waits_for_disk else FileDeleter()
        self._mutex = threading.Lock()
        self._current: dict[ArrangementId, Manifest] = {}
        self._users: Counter[str] = Counter()
        self._total = 0
        self._scarce, self._full = False, False
        self._busy: set[str] = set()
        self._merging: set[StepId] = set()
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def close(self) -> None:
        """End the incarnation and delete its files."""
        if self._deleter is not None:
            self._deleter.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def bytes(self) -> int:
        """The bytes of the files in use."""
        return self._total

    @property
    def bytes_left(self) -> int | None:
        """The bytes that steps may still write; None: no limit."""
        return None if self._limit is None else max(self._limit - self.bytes, 0)

    @property
    def merge_bytes_limit(self) -> int | None:
        """The bytes that a background merge may read, given the space left; None: any number."""
        left = self.bytes_left
        if left is None:
            return None
        if self._full or left < LITTLE_BYTES:
            return LITTLE_BYTES
        return MUCH_BYTES if self._scarce else None

    def set_scratch_space(self, *, scarce: bool, full: bool) -> None:
        """Set whether scratch as a whole is scarce or used up.

        Running steps and merges end if too little space is left for them (`BatchWriter.check_space`). Raises OSError.
        """
        self._scarce, self._full = scarce, full
        for name, holds in ((SCARCE, scarce), (FULL, full)):
            if holds:
                (self.directory / name).touch()
            else:
                (self.directory / name).unlink(missing_ok=True)

    def current(self, arrangement: ArrangementId) -> Manifest:
        """The newest manifest."""
        with self._mutex:
            return self._get(arrangement)

    def arrangements(self) -> tuple[Manifest, ...]:
        """The newest manifest of every arrangement."""
        with self._mutex:
            return tuple(self._current.values())

    def install(self, manifest: Manifest) -> None:
        """Add an arrangement. Raises StaleManifest if it exists."""
        with self._mutex:
            if manifest.arrangement in self._current:
                raise StaleManifest(f"arrangement {manifest.arrangement} is already installed")
            self._use(manifest)
            self._current[manifest.arrangement] = manifest

    def commit(self, old: Manifest, new: Manifest) -> None:
        """Replace `old` by `new`. Raises StaleManifest, without a change, unless `old` is the newest."""
        self.commit_all([(old, new)])

    def commit_all(self, moves: Sequence[tuple[Manifest, Manifest]]) -> None:
        """Replace several manifests, as (old, new): all of them, or none. Raises StaleManifest, DiskLimitExceeded."""
        with self._mutex:
            for old, _ in moves:
                if self._get(old.arrangement) != old:
                    raise StaleManifest(f"arrangement {old.arrangement} has a newer manifest than the one replaced")
            self._check_limit(moves)
            for _, new in moves:
                self._use(new)
                self._current[new.arrangement] = new
            unused = self._drop(old for old, _ in moves)
        self._delete(unused)

    def remove(self, arrangement: ArrangementId) -> None:
        """Remove an arrangement. Its files are deleted when the last pin ends."""
        with self._mutex:
            manifest = self._get(arrangement)
            del self._current[arrangement]
            unused = self._drop([manifest])
        self._delete(unused)

    @contextmanager
    def pin(self, *arrangements: ArrangementId) -> Iterator[dict[ArrangementId, Manifest]]:
        """The newest manifests; their files stay while the context lasts."""
        with self._mutex:
            pinned = {a: self._get(a) for a in arrangements}
            for manifest in pinned.values():
                self._use(manifest)
        try:
            yield pinned
        finally:
            with self._mutex:
                unused = self._drop(pinned.values())
            self._delete(unused)

    @contextmanager
    def merging(self, merge: Merge, step: StepId) -> Iterator[Manifest]:
        """While the context lasts, the merge's batches are busy and pinned, and the files of `step` are not swept."""
        with self.pin(merge.arrangement) as pinned:
            files = {b.file for b in merge.batches}
            with self._mutex:
                self._busy |= files
                self._merging.add(step)
            try:
                yield pinned[merge.arrangement]
            finally:
                with self._mutex:
                    self._busy -= files
                    self._merging.discard(step)

    @property
    def busy(self) -> frozenset[str]:
        """The files in background merges."""
        with self._mutex:
            return frozenset(self._busy)

    def discard(self, batches: Iterable[BatchRef]) -> None:
        """Delete those of a committed step's batches without users: the step wrote them and merged them itself."""
        with self._mutex:
            unused = [batch.file for batch in batches if batch.file not in self._users]
        self._delete(unused)

    def sweep(self, running: Collection[StepId], of: str = "") -> int:
        """Delete files without users that no running step may be writing. Returns their number.

        `of`: a prefix of the names of arrangements and steps.
        """
        found = list(self.directory.glob(f"{of}*/{of}*"))
        with self._mutex:
            left = [path for path in found if self._is_left_behind(path, running)]
        gone = sum(map(_removed, left))  # outside the lock: these files can get no new users
        if gone < len(left):
            LOG.warning("%d files in %s could not be removed; they are tried again", len(left) - gone, self.directory)
        return gone

    def clear(self, of: str) -> None:
        """Delete the empty folders of removed arrangements whose names begin with `of`."""
        self._clear(self.directory.glob(f"{of}*/"))

    def remove_later(self, removal: Removal) -> None:
        """Run a removal of files as the store runs its own: now, or soon on its thread; never if the process ends
        before. May be called from any thread.
        """
        if self._deleter is None:
            removal()
        else:
            self._deleter.add(removal)

    def _clear(self, folders: Iterable[Path]) -> None:
        """Delete the empty folders of removed arrangements. Names are never used again, so a delay does no harm."""
        for folder in folders:
            with self._mutex:
                forgotten = folder.name not in self._current
            if forgotten:
                with suppress(OSError):  # something is in it
                    folder.rmdir()

    def _is_left_behind(self, path: Path, running: Collection[StepId]) -> bool:
        file, step = str(path.relative_to(self.directory)), path.name.rsplit("-", 2)[0]
        return file not in self._users and step not in running and step not in self._merging

    def _get(self, arrangement: ArrangementId) -> Manifest:
        found = self._current.get(arrangement)
        if found is None:
            raise UnknownArrangement(f"the store holds no arrangement {arrangement}")
        return found

    def _check_limit(self, moves: Sequence[tuple[Manifest, Manifest]]) -> None:
        """Raise DiskLimitExceeded for a growth beyond the limit. A change that shrinks the state, such as a merge,
        passes.
        """
        if self._limit is None:
            return
        added = {b.file: b.bytes for _, new in moves for b in new.batches if b.file not in self._users}
        if not added:
            return
        size, used = sum(added.values()), self._total
        if used + size > self._limit and size > _replaced(moves):
            grown = ", ".join(new.arrangement for _, new in moves if not added.keys().isdisjoint(new.files))
            raise DiskLimitExceeded(
                f"arrangement {grown} grew by {size} bytes: all arrangements would take {used + size} of the "
                f"{self._limit} allowed; give the replica more scratch or keep less state"
            )

    def _use(self, manifest: Manifest) -> None:
        for batch in manifest.batches:
            if batch.file not in self._users:
                self._total += batch.bytes
            self._users[batch.file] += 1

    def _drop(self, manifests: Iterable[Manifest]) -> list[str]:
        """Drop the uses of these manifests. Returns the files without users, which no manifest can name again."""
        unused = []
        for batch in chain.from_iterable(manifest.batches for manifest in manifests):
            self._users[batch.file] -= 1
            if self._users[batch.file] == 0:
                del self._users[batch.file]
                self._total -= batch.bytes
                unused.append(batch.file)
        return unused

    def _delete(self, files: Sequence[str]) -> None:
        if files:
            self.remove_later(partial(self._delete_now, files))

    def _delete_now(self, files: Sequence[str]) -> None:
        """Delete files and empty folders on the calling thread."""
        for file in files:
            _removed(self.directory / file)
        self._clear({self.directory / file.partition("/")[0] for file in files})


def _replaced(moves: Iterable[tuple[Manifest, Manifest]]) -> int:
    """The bytes of the files that only the old manifests have."""
    size = 0
    for old, new in moves:
        kept = new.files
        size += sum(b.bytes for b in old.batches if b.file not in kept)
    return size


def _removed(path: Path) -> bool:
    """Delete a file. Returns whether it is gone; otherwise a sweep tries again."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        LOG.debug("%s stays: %s", path, error)
        return False
    return True
