"""Certificates as files: this user's alone, whole at every moment, and written by one at a time."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from tests.certificates.samples import R1, R1_PLACE, R2_PLACE, START_MS, material
from tidemark_operator.certificates.certificate_state import to_files
from tidemark_operator.certificates.files import FolderStore
from tidemark_operator.certificates.issue import new_authority
from tidemark_operator.certificates.names import PLANNER
from tidemark_operator.certificates.store import Files, SecretLocation, WriteConflict
from tidemark_operator.errors import CertificateRefused
from tidemark_protocol.tls.folder import CertificateFolder

AUTHORITY = new_authority(START_MS)


def some_bag() -> Files:
    found = material(AUTHORITY, R1, START_MS)
    return to_files(found)


def create(store: FolderStore, place: SecretLocation, bag: Files) -> None:
    asyncio.run(store.write(place, bag, None))


def test_stored_files_are_read_back_and_replaced(tmp_path: Path) -> None:
    """A process reads the same three files as the operator."""
    store, first, second = FolderStore(tmp_path), some_bag(), some_bag()
    assert asyncio.run(store.load(R1_PLACE)) is None
    create(store, R1_PLACE, first)
    for bag in (first, second):
        kept = asyncio.run(store.load(R1_PLACE))
        assert kept is not None
        assert kept.bag == bag
        mounted = CertificateFolder(store.path(R1_PLACE)).read()
        assert [mounted.certificate, mounted.key, mounted.authorities] == list(bag.values())
        if bag is first:
            asyncio.run(store.write(R1_PLACE, second, kept))


def test_other_users_cannot_read_the_files(tmp_path: Path) -> None:
    """Whatever the umask is."""
    store, before = FolderStore(tmp_path / "state" / "certificates"), os.umask(0)
    try:
        create(store, R1_PLACE, some_bag())
    finally:
        os.umask(before)
    below = [path for path in (tmp_path / "state" / "certificates").rglob("*") if not path.is_symlink()]
    assert len(below) == 6
    assert [path for path in below if path.stat().st_mode & 0o077] == []


def test_replaced_files_leave_no_key_behind(tmp_path: Path) -> None:
    """Nor does a writer that died with its folder half made."""
    store = FolderStore(tmp_path)
    create(store, R1_PLACE, some_bag())
    half = store.path(R1_PLACE) / "..dead"
    half.mkdir()
    (half / "tls.key").write_bytes(b"key")
    (store.path(R1_PLACE) / "..new-dead").symlink_to("..dead")
    kept = asyncio.run(store.load(R1_PLACE))
    assert kept is not None
    new = some_bag()
    asyncio.run(store.write(R1_PLACE, new, kept))
    keys = [path for path in store.path(R1_PLACE).rglob("tls.key") if not path.is_symlink()]
    assert [key.read_bytes() for key in keys] == [new["tls.key"]]
    assert not (store.path(R1_PLACE) / "..new-dead").is_symlink()


def test_of_many_writers_at_once_one_wins(tmp_path: Path) -> None:
    """Each had seen that there was nothing."""
    stores, outcomes, ready = [FolderStore(tmp_path) for _ in range(8)], list[str](), threading.Barrier(8)

    def write(store: FolderStore) -> None:
        bag = some_bag()
        ready.wait()
        try:
            create(store, R1_PLACE, bag)
            outcomes.append("won")
        except WriteConflict:
            outcomes.append("taken")

    threads = [threading.Thread(target=write, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["taken"] * 7 + ["won"]


def test_replacing_a_removed_file_is_a_conflict(tmp_path: Path) -> None:
    """Somebody else replaced it first."""
    store = FolderStore(tmp_path)
    create(store, R1_PLACE, some_bag())
    kept = asyncio.run(store.load(R1_PLACE))
    assert kept is not None
    asyncio.run(store.write(R1_PLACE, some_bag(), kept))
    with pytest.raises(WriteConflict):
        asyncio.run(store.write(R1_PLACE, some_bag(), kept))
    with pytest.raises(WriteConflict):
        create(store, R1_PLACE, some_bag())


def test_replicas_that_are_gone_leave_nothing(tmp_path: Path) -> None:
    """Secrets outside of a namespace stay: the planner's, and the authority."""
    store = FolderStore(tmp_path)
    for place in (R1_PLACE, R2_PLACE, SecretLocation(PLANNER)):
        create(store, place, some_bag())
    store.retain([R2_PLACE])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["team-a.tidemark-replica-r2-tls", PLANNER]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """With what is wrong with it."""
    (tmp_path / "file").write_text("")
    with pytest.raises(CertificateRefused, match=r"file.* cannot be written: Not a directory"):
        create(FolderStore(tmp_path / "file"), R1_PLACE, some_bag())
