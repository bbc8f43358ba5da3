"""The arrangement store: which manifests are alive, hence which files may go.

    <root>/<incarnation>/<arrangement>/<step>-<attempt>-<n>.arrow
           └ .lock, held while the incarnation lives: the next one removes those that nobody holds

    install ──> current manifest ──commit──> newer manifest         every current manifest and every pin counts
                     └──pin──> held by a step, an importer, a peek  as a user of its files; a file without users goes

State is scratch: it dies with the incarnation, and a new one hydrates afresh. So nothing is synced, and a crash leaves
at worst files that the next incarnation removes.

The counts, and how many bytes all those files have, live in the driver, under one lock. Tasks only ever write files
under their step's name; `sweep` takes away what steps that are over left behind without committing it (failed,
cancelled and speculative attempts).

Which files count is decided in memory, at once or not at all, and files go afterwards: on a thread of their own where
nothing is to wait for a disk (`deleting`). A file that the disk does not let go of is nobody's then, and is tried again
by the next sweep: so no change to a manifest fails, or stops half way, for a file. No disk is asked for anything within
the lock.
"""

import fcntl
import logging
import os
import shutil
import threading
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO

from tidemark_replica.arrangement.batches.batch import BatchRef
from tidemark_replica.arrangement.batches.file_deleter import FileDeleter, Removal
from tidemark_replica.arrangement.errors import DiskLimitExceeded, StaleManifest, UnknownArrangement
from tidemark_replica.arrangement.spines.manifest import ArrangementId, Manifest
from tidemark_replica.arrangement.spines.spine import Merge
from tidemark_replica.arrangement.step import FULL, LITTLE_BYTES, MUCH_BYTES, SCARCE, StepId

LOG = logging.getLogger(__name__)
_LOCK = ".lock"


class ArrangementStore:
    """The arrangements of one incarnation of a replica."""

    def __init__(self, root: Path, *, limit_bytes: int | None = None, waits_for_disk: bool = True) -> None:
        """`waits_for_disk`: whether what is to go has gone when a method returns, and not soon afterwards."""
        self._limit = limit_bytes
        self._deleting = None if waits_for_disk else FileDeleter()
        self._mutex = threading.Lock()
        self._current: dict[ArrangementId, Manifest] = {}
        self._users: Counter[str] = Counter()
        self._total = 0
        self._scarce, self._full = False, False
        self._busy: set[str] = set()
        self._merging: set[StepId] = set()
        self.directory, self._lock = _new_incarnation(root)

    def close(self) -> None:
        """End the incarnation: all its files go."""
        if self._deleting is not None:
            self._deleting.close()
        shutil.rmtree(self.directory, ignore_errors=True)
        self._lock.close()

    @property
    def bytes(self) -> int:
        """What the files in use take."""
        return self._total

    @property
    def bytes_left(self) -> int | None:
        """What steps may still write; None: no limit."""
        return None if self._limit is None else max(self._limit - self.bytes, 0)

    @property
    def merge_bytes_limit(self) -> int | None:
        """Bytes that a merge beside steps may read, as there is room; None: any number."""
        left = self.bytes_left
        if left is None:
            return None
        if self._full or left < LITTLE_BYTES:
            return LITTLE_BYTES
        return MUCH_BYTES if self._scarce else None

    def set_scratch_space(self, *, scarce: bool, full: bool) -> None:
        """How much is left of scratch as a whole, of which these files are a part: steps under way, and merges, end
        where there is too little for them (`BatchWriter.check_room`). Raises OSError."""
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
        """Begin to keep an arrangement."""
        with self._mutex:
            if manifest.arrangement in self._current:
                raise StaleManifest(f"arrangement {manifest.arrangement} is installed already")
            self._use(manifest)
            self._current[manifest.arrangement] = manifest

    def commit(self, old: Manifest, new: Manifest) -> None:
        """Put `new` in the place of `old`; raises StaleManifest, and changes nothing, unless `old` is the newest."""
        self.commit_all([(old, new)])

    def commit_all(self, moves: Sequence[tuple[Manifest, Manifest]]) -> None:
        """The same of several, as (old, new): all of them, or none."""
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
        """Forget an arrangement; its files go when the last pin does."""
        with self._mutex:
            manifest = self._get(arrangement)
            del self._current[arrangement]
            unused = self._drop([manifest])
        self._delete(unused)

    @contextmanager
    def pin(self, *arrangements: ArrangementId) -> Iterator[dict[ArrangementId, Manifest]]:
        """The newest manifests, whose files stay while the context lasts."""
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
        """While it lasts the merge's batches are busy, and stay, and what `step` writes is not swept."""
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
        """The files that are being merged."""
        with self._mutex:
            return frozenset(self._busy)

    def discard(self, batches: Iterable[BatchRef]) -> None:
        """Delete those of a committed step's files that nobody uses: what it wrote and merged away itself."""
        with self._mutex:
            unused = [batch.file for batch in batches if batch.file not in self._users]
        self._delete(unused)

    def sweep(self, running: Collection[StepId], of: str = "") -> int:
        """Delete files that nobody uses and no running step may be writing; says how many.

        `of`: only of arrangements, and of steps, whose names begin so.
        """
        found = list(self.directory.glob(f"{of}*/{of}*"))
        with self._mutex:
            left = [path for path in found if self._is_left_behind(path, running)]
        gone = sum(map(_removed, left))  # beside the lock: nobody can come to use them
        if gone < len(left):
            LOG.warning("%d files in %s could not be removed; they are tried again", len(left) - gone, self.directory)
        return gone

    def clear(self, of: str) -> None:
        """Take away forgotten arrangements' folders whose names begin so; one that is read goes with its files."""
        self._clear(self.directory.glob(f"{of}*/"))

    def remove_later(self, removal: Removal) -> None:
        """Have the caller's own files removed as the store's are: now, or soon, beside everything else; or never, where
        the process ends before. From any thread."""
        if self._deleting is None:
            removal()
        else:
            self._deleting.add(removal)

    def _clear(self, folders: Iterable[Path]) -> None:
        """No name of an arrangement is used again: what is forgotten now will be when the disk has come to it."""
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
            raise UnknownArrangement(f"no arrangement {arrangement} is kept here")
        return found

    def _check_limit(self, moves: Sequence[tuple[Manifest, Manifest]]) -> None:
        """What makes less of it, as a merge does, is let through: else nothing could, once the limit is reached."""
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
        """The files that are nobody's now, and never will be again: no manifest can name them any more."""
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
        """A busy disk holds up whoever deletes, and nobody else."""
        for file in files:
            _removed(self.directory / file)
        self._clear({self.directory / file.partition("/")[0] for file in files})


def _replaced(moves: Iterable[tuple[Manifest, Manifest]]) -> int:
    """Bytes of the files that the new manifests have no more."""
    size = 0
    for old, new in moves:
        kept = new.files
        size += sum(b.bytes for b in old.batches if b.file not in kept)
    return size


def _new_incarnation(root: Path) -> tuple[Path, IO[bytes]]:
    """A directory of its own under `root`, locked for as long as this process lives; dead ones are removed."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / _LOCK).open("ab") as all_of_root:
        fcntl.flock(all_of_root, fcntl.LOCK_EX)  # nobody is between making its directory and locking it
        for other in root.iterdir():
            if other.is_dir() and _is_dead(other):
                shutil.rmtree(other, ignore_errors=True)
        directory = root / f"incarnation-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        directory.mkdir()
        lock = (directory / _LOCK).open("ab")
        fcntl.flock(lock, fcntl.LOCK_EX)
    return directory, lock


def _removed(path: Path) -> bool:
    """Whether the file is gone; one that is not waits for a sweep."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        LOG.debug("%s stays: %s", path, error)
        return False
    return True


def _is_dead(directory: Path) -> bool:
    try:
        with (directory / _LOCK).open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
