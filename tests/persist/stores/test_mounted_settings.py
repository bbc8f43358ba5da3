"""Settings of the object store in files: allowed entries, and new credentials that count at once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.persist.model import COLUMNS, batch, contents
from tests.s3_server import S3Server, server_beside
from tidemark_persist import Appended, StorageError, create_or_open, open_shard
from tidemark_persist.errors import StoreProblem
from tidemark_persist.storage import mounted_settings
from tidemark_persist.storage.storage import Storage

KEYS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
ROWS, LATER = batch([(("a", 1), 3, 1)]), batch([(("a", 1), 7, 1)])


def mount(folder: Path, version: str, settings: Mapping[str, str]) -> None:
    """Mount as a kubelet does: the files in a folder of their own, and then one link is moved."""
    (folder / f"..{version}").mkdir(parents=True)
    for name, value in settings.items():
        (folder / f"..{version}" / name).write_text(value)
    (folder / "..new").symlink_to(f"..{version}")
    os.replace(folder / "..new", folder / "..data")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one that this process is told of; nothing is in it, nor is it there."""
    monkeypatch.setenv(mounted_settings.VARIABLE, str(tmp_path / "store"))
    return tmp_path / "store"


def test_files_are_settings_and_names_outside_aws_are_left_alone(folder: Path) -> None:
    """Line ends are no part of a secret: editors leave them."""
    mount(folder, "1", {**KEYS, "AWS_REGION": "eu-1\n", "password": "x", "..hidden": "y"})
    assert mounted_settings.read_mounted().settings == {**KEYS, "AWS_REGION": "eu-1"}
    mount(folder, "2", {**KEYS, "AWS_REGION": "eu-2"})
    assert mounted_settings.read_mounted().settings["AWS_REGION"] == "eu-2"


def test_a_folder_without_links_does_too(folder: Path) -> None:
    """Made by hand."""
    folder.mkdir()
    for name, value in KEYS.items():
        (folder / name).write_text(value)
    assert mounted_settings.read_mounted().settings == KEYS


def test_without_the_variable_the_environment_alone_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment alone counts, as before."""
    monkeypatch.delenv(mounted_settings.VARIABLE, raising=False)
    assert mounted_settings.read_mounted() == mounted_settings.MountedSettings()


@pytest.mark.parametrize("missing", list(KEYS))
def test_settings_without_credentials_name_the_missing_ones(folder: Path, missing: str) -> None:
    """Instead of going to look for some elsewhere, which takes long where there are none."""
    mount(folder, "1", {name: value for name, value in KEYS.items() if name != missing})
    with pytest.raises(StorageError, match=f"has no {missing}: check") as raised:
        open_shard("s3://bucket/x")
    assert raised.value.problem is StoreProblem.DENIED


def test_settings_that_are_not_there_yet_are_looked_for_at_the_next_attempt(folder: Path) -> None:
    """A Secret may be made after the process that is to use it."""
    with pytest.raises(StorageError, match="has no settings"):
        open_shard("s3://bucket/x")
    mount(folder, "1", KEYS)
    assert Storage.at("s3://bucket/x").settings["AWS_ACCESS_KEY_ID"] == "a"


def test_settings_that_are_unsafe_are_refused_in_files_too(folder: Path) -> None:
    """Wherever they are said."""
    mount(folder, "1", {**KEYS, "AWS_S3_ALLOW_UNSAFE_RENAME": "true"})
    with pytest.raises(Exception, match="two writers could both win"):
        open_shard("s3://bucket/x")


def test_a_handle_goes_on_with_new_credentials_when_the_old_ones_end(folder: Path, s3: S3Server) -> None:
    """A writer and a reader that are open: what they have is opened anew, and nothing is lost between."""
    location = s3.location("rotated")
    with server_beside(s3) as old:
        mount(folder, "1", old.environ)
        writer = create_or_open(location, COLUMNS, shard_id="s")
        reader = open_shard(location)
        assert writer.compare_and_append(ROWS, expected_upper=0, new_upper=5, term=1) == Appended(5, 1)
        assert reader.refresh().upper == 5
    with pytest.raises(StorageError) as raised:  # the old server is gone, and its credentials with it
        reader.refresh()
    assert raised.value.problem is StoreProblem.UNREACHABLE

    mount(folder, "2", s3.environ)
    assert reader.refresh().upper == 5
    assert writer.compare_and_append(LATER, expected_upper=5, new_upper=9, term=1) == Appended(9, 2)
    for work in writer.maintenance_due():
        writer.run_maintenance(work)
    assert contents(reader.snapshot(8)) == {("a", 1): 2}


def test_credentials_are_shown_by_nothing_that_holds_them(folder: Path, s3: S3Server) -> None:
    """Neither by what is read from files, nor by what is opened with it, nor by an error."""
    mount(folder, "1", {**s3.environ, "AWS_SECRET_ACCESS_KEY": f"{s3.secret_key}x"})
    with pytest.raises(StorageError) as raised:
        create_or_open(s3.location("denied"), COLUMNS, shard_id="s")
    shown = [
        repr(mounted_settings.read_mounted()),
        repr(Storage.at(s3.location("x"))),
        str(raised.value),
        repr(raised.value),
    ]
    assert not any(s3.secret_key in text or s3.access_key in text for text in shown)
    assert raised.value.problem is StoreProblem.DENIED


WRONG = {
    "secret": ({"AWS_SECRET_ACCESS_KEY": "x" * 40}, StoreProblem.DENIED),
    "user": ({"AWS_ACCESS_KEY_ID": "AKIANOBODY"}, StoreProblem.DENIED),
    "endpoint": ({"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, StoreProblem.UNREACHABLE),
}


@pytest.mark.parametrize("name", WRONG)
def test_problems_of_a_store_are_distinguished_with_their_remedy(s3: S3Server, name: str) -> None:
    """By what it answers to a listing, a write and an opening."""
    wrong, problem = WRONG[name]
    storage = Storage.at(s3.location("wrong"), {**s3.environ, **wrong})
    for attempt in (lambda: storage.list(""), lambda: storage.write("x", b"1"), lambda: open_shard(**vars_of(storage))):
        with pytest.raises(StorageError, match=problem.advice) as raised:
            attempt()
        assert raised.value.problem is problem


def vars_of(storage: Storage) -> dict[str, object]:
    return {"location": storage.location, "storage_options": storage.options}


def test_a_bucket_that_is_not_there_is_told_as_that(s3: S3Server) -> None:
    """Also to who writes: a store says that the object is not found."""
    storage = Storage.at("s3://no-such-bucket/x", s3.environ)
    for attempt in (lambda: storage.list(""), lambda: storage.write("x", b"1")):
        with pytest.raises(StorageError, match="create the bucket") as raised:
            attempt()
        assert raised.value.problem is StoreProblem.NO_BUCKET
