"""Buckets that a source reads with credentials of its own Secret, at a real S3 server."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.s3_server import S3Server
from tests.storage.delta.delta_tables import ingested_rows, spec_of
from tests.storage.ingestion_samples import description
from tests.storage.test_source_secrets import mounted
from tidemark_persist import ShardWriters, Storage, StorageError
from tidemark_persist.storage import object_reader
from tidemark_protocol.ids import Time, WriterTerm
from tidemark_protocol.plan.ingestion import DeltaSource, DeltaTable, FilesSource, FilesTable, SourceTable
from tidemark_replica.storage.bucket_options import bucket_options
from tidemark_replica.storage.delta.source import DeltaIngestion
from tidemark_replica.storage.files.bucket import Bucket
from tidemark_replica.storage.files.file_store import file_store
from tidemark_replica.storage.ingester import Ingester
from tidemark_replica.storage.source_secrets import SecretUnusable, SourceSecrets

SECRET = "orders-db"


def entries_of(s3: S3Server, **others: str) -> dict[str, str]:
    """The entries of a Secret of the server's credentials."""
    return {name: s3.environ[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION")} | others


def source_of(s3: S3Server, path: str) -> FilesSource:
    return FilesSource((FilesTable("t", "csv", path),), SECRET, s3.environ["AWS_ENDPOINT_URL"])


@pytest.fixture
def no_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    """The replica's environment has other credentials, of another store."""
    for name, value in (("AWS_ACCESS_KEY_ID", "none"), ("AWS_SECRET_ACCESS_KEY", "none")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")


@pytest.mark.usefixtures("no_instance")
def test_a_delta_table_is_followed_with_credentials_of_its_own(s3: S3Server, tmp_path: Path) -> None:
    """Rotated keys count at the next tick. Refused keys are an error without secrets, and the source goes on."""
    path = s3.location(f"lake/{uuid.uuid4().hex}")

    def append(*numbers: int) -> None:
        write_deltalake(path, pa.table({"a": list(numbers)}), mode="append", storage_options=s3.environ)

    append(1)
    secrets = mounted(tmp_path / "secrets", **entries_of(s3))
    source = DeltaSource((DeltaTable("t", path),), SECRET, s3.environ["AWS_ENDPOINT_URL"])
    spec = spec_of(*source.tables, options=bucket_options(source, secrets.read))
    tables = (SourceTable("t", spec.tables[0].columns or ()),)
    one = Ingester(
        description(tmp_path, spec, tables),
        WriterTerm(1),
        DeltaIngestion(spec, bucket_options(source, secrets.read)),
        ShardWriters(),
    )
    one.recover()
    assert one.tick(Time(100))
    append(2)
    mounted(tmp_path / "secrets", **entries_of(s3, AWS_SECRET_ACCESS_KEY="x" * 40))
    with pytest.raises(StorageError, match="check AWS_ACCESS_KEY_ID") as raised:
        one.tick(Time(200))
    for secret in (s3.access_key, s3.secret_key, "x" * 40, "Signature="):
        assert secret not in str(raised.value)
    mounted(tmp_path / "secrets", **entries_of(s3))
    assert one.tick(Time(300))

    assert ingested_rows(tmp_path, "t", 300) == {(1,): 1, (2,): 1}
    assert s3.secret_key not in repr(spec) + repr(one._source.__dict__)


@pytest.mark.usefixtures("no_instance")
def test_a_client_is_made_once_for_a_store_and_its_credentials(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client is not made for each object, nor for each task; new credentials make another."""
    made = []
    real = object_reader.open_store
    monkeypatch.setattr(object_reader, "open_store", lambda *given: made.append(given) or real(*given))
    secrets = mounted(tmp_path, **entries_of(s3))
    location = s3.location(uuid.uuid4().hex)
    for name in "abc":
        Storage.at(location, s3.environ).write(name, name.encode())
    source = source_of(s3, location)
    options = bucket_options(source, secrets.read)
    for _ in range(3):
        bucket = file_store(source.tables[0], options)
        for file in bucket.list("*").files:
            with bucket.open(file) as content:
                assert content.read() == file.name.encode()
    assert len(made) == 1
    mounted(tmp_path, **entries_of(s3, AWS_SECRET_ACCESS_KEY="x" * 40))
    with pytest.raises(StorageError):
        Bucket(location, options).list("*")
    assert len(made) == 2


@pytest.mark.usefixtures("no_instance")
def test_a_copy_for_a_task_has_the_credentials_of_its_moment(s3: S3Server, tmp_path: Path) -> None:
    """No text of it has them: Secrets are mounted in drivers alone."""
    secrets = mounted(tmp_path, **entries_of(s3))
    source = source_of(s3, s3.location(uuid.uuid4().hex))
    bucket = Bucket(source.tables[0].path, bucket_options(source, secrets.read))
    Storage.at(bucket.location, s3.environ).write("a", b"1")
    copy = Bucket.__new__(Bucket)
    copy.__dict__.update(bucket.__getstate__())
    mounted(tmp_path)
    assert [file.name for file in copy.list("*").files] == ["a"]
    assert s3.secret_key not in repr(copy)
    assert Bucket("s3://b/p").__getstate__()["options"] is None


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "k"}, "entry AWS_ACCESS_KEY_ID of Secret orders-db is missing"),
        ({"AWS_ENDPOINT_URL": "http://10.0.0.1"}, "entry AWS_ENDPOINT_URL of Secret orders-db is not read"),
        ({"AWS_ENDPOINT_URL_S3": "http://10.0.0.1"}, "entry AWS_ENDPOINT_URL_S3 of Secret orders-db is not read"),
        ({"AWS_REGION": "a@10.0.0.1/"}, "entry AWS_REGION of Secret orders-db is not a region"),
    ],
)
def test_a_secret_gives_keys_and_no_address(tmp_path: Path, entries: dict[str, str], text: str) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "i", "AWS_SECRET_ACCESS_KEY": "k"}
    secrets = mounted(tmp_path, **(entries if "AWS_SECRET_ACCESS_KEY" in entries else keys | entries))
    options = bucket_options(FilesSource((), SECRET), secrets.read)
    assert callable(options)
    with pytest.raises(SecretUnusable, match=text):
        options()


def test_a_token_of_the_environment_is_not_sent_with_keys_of_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = mounted(tmp_path, AWS_ACCESS_KEY_ID="i", AWS_SECRET_ACCESS_KEY="k")
    options = bucket_options(FilesSource((), SECRET), secrets.read)
    assert callable(options)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "t")
    with pytest.raises(SecretUnusable, match="AWS_SESSION_TOKEN, and the one of this replica's environment"):
        options()


def test_a_source_without_a_secret_has_the_options_of_its_instance() -> None:
    assert bucket_options(FilesSource(()), SourceSecrets(None).read) is None
