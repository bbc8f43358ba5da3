"""New objects of a bucket, listed at a real S3 server: each once, in bounded looks, and no more often than allowed."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from pyspark.accumulators import Accumulator, AccumulatorParam

from tests.s3_server import S3Server
from tidemark_persist import ObjectReader, ObjectVersion, Storage, StorageError
from tidemark_protocol.plan.ingestion import FilesTable
from tidemark_replica.storage.files import bucket_arrivals, listing
from tidemark_replica.storage.files.bucket import Bucket
from tidemark_replica.storage.files.bucket_arrivals import BY_NAME, BucketArrivals
from tidemark_replica.storage.files.listing import BoundFiles, FileVersion
from tidemark_replica.storage.files.streamed.problem_report import ProblemReport


class Followed:
    """A table over a new prefix. `pages`: how many pages were requested."""

    def __init__(self, s3: S3Server, monkeypatch: pytest.MonkeyPatch, **table: object) -> None:
        for name, value in s3.environ.items():
            monkeypatch.setenv(name, value)
        self.storage = Storage.at(s3.location(uuid.uuid4().hex))
        self.table = FilesTable("t", "csv", self.storage.location, **table)  # type: ignore[arg-type]
        self.known, self.pages = BoundFiles(), 0
        real = ObjectReader.pages

        def counted(reader: ObjectReader, after: str = "") -> object:
            for page in real(reader, after):
                self.pages += 1
                yield page

        monkeypatch.setattr(ObjectReader, "pages", counted)
        self.arrivals = BucketArrivals(self.table, Bucket(self.table.path))
        self.bound: list[FileVersion] = []
        self.changed = 0

    def put(self, *names: str) -> None:
        for name in names:
            self.storage.write(name, name.encode())

    def look(self, released: dict[str, FileVersion] | None = None) -> list[str]:
        """The names that are bound by a look."""
        arrived = self.arrivals.look(self.known, released or {})
        self.known.add(arrived.files)
        self.bound += arrived.files
        self.changed = arrived.changed
        return [file.name for file in arrived.files]


@pytest.fixture
def followed(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Followed]:
    monkeypatch.setattr(bucket_arrivals, "PAGE_SECONDS", 0.0)
    monkeypatch.setattr("tidemark_persist.storage.object_reader.PAGE", 4)
    return lambda **table: Followed(s3, monkeypatch, **table)


def test_each_object_is_bound_once_in_bounded_looks(followed: Callable[..., Followed]) -> None:
    """Also an object that comes between two scans or during one, before or after its place; folders are passed over."""
    f = followed(max_files_per_tick=5)
    f.put(*(f"f{i:02}" for i in range(12)), ".hidden", "_SUCCESS", "half.tmp", "in/a", "in/b", "in/c", "in/d", "in/e")
    assert f.look() == ["f00", "f01", "f02", "f03", "f04"]
    f.put("a-before", "f05x", "z-after")
    assert f.look() == ["f05", "f05x", "f06", "f07", "f08"]
    assert f.look() == ["f09", "f10", "f11", "z-after"]
    assert f.look() == ["a-before"]
    assert f.look() == []
    assert len(f.known) == 15


@pytest.mark.parametrize("order", ["", BY_NAME])
def test_looks_are_bounded_in_bytes_too(
    followed: Callable[..., Followed], monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    """An object has as many bytes as its name. One that is larger than the bound is taken alone; one that is changed,
    before an object that has no room, counts once."""
    monkeypatch.setattr(listing, "TICK_BYTES", 8)
    f = followed(order=order)
    f.put("a1", "a2", "a3", "b/x", "c1", "d-is-too-large", "d2", "e1", "e2", "e3", "e4")
    looks = [f.look() for _ in range(5)]
    assert looks == [["a1", "a2", "a3", "c1"], ["d-is-too-large"], ["d2", "e1", "e2", "e3"], ["e4"], []]
    if order != BY_NAME:
        f.storage.write("e4", b"other")
        f.put("f1", "f2", "f-has-no-room")
        assert [f.look(), f.look(), f.look()] == [["f-has-no-room"], ["f1", "f2"], []]
        assert f.changed == 1


def test_looks_are_bounded_in_pages_too(followed: Callable[..., Followed], monkeypatch: pytest.MonkeyPatch) -> None:
    """A look ends also where few objects are new, and the next look goes on."""
    monkeypatch.setattr(bucket_arrivals, "PAGES_PER_LOOK", 2)
    f = followed(pattern="*.csv")
    f.put(*(f"f{i:02}" for i in range(17)), "x.csv")
    looks = [f.look() for _ in range(4)]
    assert [name for look in looks for name in look] == ["x.csv"]
    assert f.pages <= 8


@pytest.mark.parametrize("order", ["", BY_NAME])
def test_folders_do_not_hold_a_scan(
    followed: Callable[..., Followed], monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    """Each look goes on behind the folders of the look before. By name, an object whose name is after the last one and
    before the last folder is read."""
    monkeypatch.setattr(bucket_arrivals, "PAGES_PER_LOOK", 20)
    f = followed(order=order)
    f.put("a", *(f"b{i:02}/{name}" for i in range(25) for name in "123456"), "c", "d", "z/1", "z/2", "z/3", "z/4")
    assert [f.look(), f.look()] == [["a"], ["c", "d"]]
    f.put("e")
    assert f.look() + f.look() == ["e"]


@pytest.mark.parametrize("order", ["", BY_NAME])
def test_markers_of_folders_are_no_files(followed: Callable[..., Followed], s3: S3Server, order: str) -> None:
    """Nor are other objects of 0 bytes, until they have bytes. The marker of the location itself is one."""
    f = followed(order=order)
    endpoint = s3.environ["AWS_ENDPOINT_URL"]
    client = pytest.importorskip("pyarrow._s3fs", reason="images have no S3 client of Arrow")
    writer = client.S3FileSystem(
        access_key=s3.access_key, secret_key=s3.secret_key, endpoint_override=endpoint, region="us-east-1"
    )
    writer.create_dir(f.storage.location.removeprefix("s3://"))
    writer.create_dir(f.storage.location.removeprefix("s3://") + "/archive")
    f.put("a", "archive-1")
    f.storage.write("b", b"")
    assert (f.look(), f.look()) == (["a", "archive-1"], [])
    assert [file.name for file in Bucket(f.table.path).list("*").files] == ["a", "archive-1"]
    f.put("b")
    assert (f.look(), f.changed) == (["b"], 0)


def test_listing_by_name_does_not_grow_with_what_was_read(followed: Callable[..., Followed]) -> None:
    """The same holds after a restart. An object with a name before the last one is not read: names must be in order."""
    f = followed(order=BY_NAME)
    f.put(*(f"f{i:02}" for i in range(30)))
    assert len(f.look()) == 30
    for number in range(30, 34):
        f.put(f"f{number}")
        before = f.pages
        assert f.look() == [f"f{number}"]
        assert f.pages - before <= 2
    f.arrivals = BucketArrivals(f.table, Bucket(f.table.path))
    f.arrivals.resume(f.bound)
    f.put("f34", "a-late")
    before = f.pages
    assert f.look() == ["f34"]
    assert f.pages - before <= 2
    assert f.look() == []


def test_scans_pause_as_long_as_they_cost(followed: Callable[..., Followed], monkeypatch: pytest.MonkeyPatch) -> None:
    """A table requests a page each second, whatever the bucket holds."""
    now = 100.0
    monkeypatch.setattr(bucket_arrivals, "PAGE_SECONDS", 1.0)
    monkeypatch.setattr(bucket_arrivals, "monotonic", lambda: now)
    f = followed()
    f.put(*(f"f{i:02}" for i in range(20)))
    assert len(f.look()) == 20
    pages = f.pages
    assert pages >= 5
    f.put("g")
    now += pages - 0.5
    assert (f.look(), f.pages) == ([], pages)
    now += 1
    assert f.look() == ["g"]


def test_objects_that_changed_or_were_released_are_not_new(followed: Callable[..., Followed]) -> None:
    """Another ETag is a change, the same bytes written again are not; another version of a released one is new."""
    f = followed()
    f.put("a", "b", "c")
    f.look()
    f.storage.write("a", b"other")
    f.put("b")
    assert (f.look(), f.changed) == ([], 1)
    released = {"c": f.bound[2]}
    f.known.remove(["c"])
    assert f.look(released) == []
    f.storage.write("c", b"mended")
    assert f.look(released) == ["c"]


def test_a_store_that_refuses_or_is_away_says_so_without_secrets(
    followed: Callable[..., Followed], s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next look with good settings lists the bucket."""
    f = followed()
    f.put("a")
    refused = {"AWS_SECRET_ACCESS_KEY": "x" * 40}
    away = {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
    for wrong, text in ((refused, "check AWS_ACCESS_KEY_ID"), (away, "error sending request")):
        with monkeypatch.context() as environ:
            for name, value in wrong.items():
                environ.setenv(name, value)
            f.arrivals = BucketArrivals(f.table, Bucket(f.table.path))
            with pytest.raises(StorageError, match=text) as raised:
                f.look()
        for secret in (s3.secret_key, "x" * 40, "Signature="):
            assert secret not in str(raised.value)
    f.arrivals = BucketArrivals(f.table, Bucket(f.table.path))
    assert f.look() == ["a"]


class _Refuses(BaseHTTPRequestHandler):
    """Answers as S3 does for objects that are archived, and for those that it denies: no server here archives."""

    def do_GET(self) -> None:
        code = "InvalidObjectState" if self.path.endswith("/archived") else "AccessDenied"
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>no</Message></Error>".encode()
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Not to stderr."""


class _Driver:
    """Gives an accumulator, without a JVM."""

    @property
    def sparkContext(self) -> _Driver:
        return self

    def accumulator(self, value: object, param: AccumulatorParam[object]) -> Accumulator[object]:
        return Accumulator(1 << 40, value, param)


@pytest.fixture
def refuses() -> Iterator[int]:
    """The port of a store that refuses each object."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Refuses) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_an_archived_object_is_an_unreadable_file_and_a_denied_one_is_named(s3: S3Server, refuses: int) -> None:
    reader = ObjectReader(Storage.at(s3.location("in"), s3.through(refuses)))
    with pytest.raises(OSError, match="in: reading archived: it is archived; restore it first") as archived:
        reader.read(ObjectVersion("archived", 5, 0, "e"), 0, 5)
    report = ProblemReport(_Driver())  # type: ignore[arg-type]
    with report.of("archived"):
        raise archived.value
    assert report.take() == {"archived": "FILE_UNREADABLE"}
    with pytest.raises(StorageError, match=r"reading denied failed: .*AccessDenied.*where other objects can be read"):
        reader.read(ObjectVersion("denied", 5, 0, "e"), 0, 5)


def test_names_that_mean_something_elsewhere_are_just_names(followed: Callable[..., Followed]) -> None:
    """Each is listed, has its version, and is read."""
    f = followed()
    f.put("a b", "c%20d", "{e}", "[f]", "g*", "h#", "i?", "é", "j+k")
    f.look()
    bucket = Bucket(f.table.path)
    for file in f.bound:
        assert bucket.version_of(file.name) == file
        with bucket.open(file) as source:
            assert source.read() == file.name.encode()
    assert len(f.bound) == 9
