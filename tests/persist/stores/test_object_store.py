"""Settings of an object store: allowed ones, the effective ones, and secrets that no message has."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.persist.model import COLUMNS
from tests.s3_server import S3Server
from tidemark_persist import InvalidLocation, PersistError, StorageError, create_or_open, open_shard
from tidemark_persist.storage.object_store import PATIENCE, redacted, settings
from tidemark_persist.storage.storage import Storage

SECRET = "wJalrXUtnFEMI-K7MDENG-bPxRfiCYEXAMPLEKEY"

REFUSED_LOCATIONS = {
    "another store": ("gs://bucket/x", "gs:// is not supported"),
    "Hadoop's name": ("s3a://bucket/x", "s3a:// is not supported"),
    "no bucket": ("s3:///x", "names no bucket"),
    "credentials": (f"s3://AKIA:{SECRET}@bucket/x", "credentials or options"),
    "options": (f"s3://bucket/x?secret={SECRET}", "credentials or options"),
}


@pytest.mark.parametrize("name", REFUSED_LOCATIONS)
def test_location_that_is_no_bucket_and_prefix_is_refused(name: str) -> None:
    """Before anything is asked of anybody, and without repeating what may be a secret."""
    location, message = REFUSED_LOCATIONS[name]
    with pytest.raises(InvalidLocation, match=message) as refused:
        create_or_open(location, COLUMNS, shard_id="s")
    assert SECRET not in str(refused.value)


UNSAFE = [
    {"AWS_S3_ALLOW_UNSAFE_RENAME": "true"},
    {"aws_s3_allow_unsafe_rename": "1"},
    {"AWS_S3_LOCKING_PROVIDER": "dynamodb"},
    {"AWS_COPY_IF_NOT_EXISTS": "multipart"},
    {"AWS_CONDITIONAL_PUT": "disabled"},
]


@pytest.mark.parametrize("unsafe", UNSAFE, ids=lambda unsafe: next(iter(unsafe)))
def test_settings_under_which_two_could_win_are_refused(unsafe: dict[str, str]) -> None:
    """Wherever they are said."""
    for given, environ in ((unsafe, {}), ({}, unsafe)):
        with pytest.raises(InvalidLocation, match="two writers could both win"):
            settings(given, environ)


def test_settings_bound_every_request_and_leave_other_options_alone() -> None:
    """The credentials of the environment are delta-rs's to read: they are not copied."""
    environ = {"AWS_S3_ALLOW_UNSAFE_RENAME": "false", "AWS_SECRET_ACCESS_KEY": SECRET}
    found = settings({"AWS_REGION": "x", "timeout": "1s"}, environ)
    assert found == {**PATIENCE, "timeout": "1s", "AWS_REGION": "x", "aws_conditional_put": "etag"}


def test_errors_are_one_line_without_secrets_and_echoes_of_a_server() -> None:
    """A server that does not like a signature answers with all that was signed."""
    answer = (
        "Generic S3 error\n \x1b[31m↳\x1b[0m 403 Forbidden: <?xml version='1.0'?>\n<Error><Code>SignatureDoesNotMatch"
        f"</Code><Message>no</Message><StringToSign>x-amz-security-token:tok-123</StringToSign></Error> {SECRET} AKIA9"
    )
    text = redacted(OSError(answer), {"aws_access_key_id": "AKIA9"}, {"AWS_SECRET_ACCESS_KEY": SECRET})
    assert text == "Generic S3 error: 403 Forbidden: SignatureDoesNotMatch: no *** ***"


WRONG = {
    "secret": {"AWS_SECRET_ACCESS_KEY": SECRET},
    "user": {"AWS_ACCESS_KEY_ID": "AKIANOBODY"},
    "token": {"AWS_SESSION_TOKEN": "not-a-token-of-anybody"},
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_credentials_are_a_storage_error_that_repeats_none_of_them(s3: S3Server, name: str) -> None:
    """The error is of a real server's answer."""
    options = {**s3.environ, **WRONG[name]}
    with pytest.raises(StorageError) as refused:
        create_or_open(s3.location("denied"), COLUMNS, shard_id="s", storage_options=options)
    told_of = f"{refused.value} {refused.value.__cause__}"
    for value in (*WRONG[name].values(), s3.access_key, s3.secret_key):
        assert value not in told_of


def test_bucket_that_is_not_there_is_no_shard_to_readers_and_an_error_to_writers(s3: S3Server) -> None:
    """Nothing is made in silence somewhere else."""
    with pytest.raises(PersistError):
        open_shard("s3://no-such-bucket/x", s3.environ)
    with pytest.raises(StorageError):
        create_or_open("s3://no-such-bucket/x", COLUMNS, shard_id="s", storage_options=s3.environ)


def test_a_location_is_shown_without_its_options(s3: S3Server) -> None:
    """An error, a log or a debugger shows it."""
    assert s3.secret_key not in repr(Storage.at(s3.location("x"), s3.environ))


def test_a_file_that_is_replaced_while_it_is_read_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first read got as many bytes of the longer file as the shorter had; a file that stays unreadable is an
    error."""
    answers = [b'{"paths": ["a', b'{"paths": ["a", "b"]}']
    storage = Storage("/nowhere")
    monkeypatch.setattr(Storage, "read", lambda *_: answers.pop(0) if len(answers) > 1 else answers[0])
    assert storage.read_json("mark") == {"paths": ["a", "b"]}
    answers[:] = [b'{"paths": ["a']
    with pytest.raises(StorageError, match="mark of shard /nowhere is not JSON"):
        storage.read_json("mark")


@pytest.mark.parametrize("wrong", [{"AWS_ENDPOINT_URL": "http://127.0.0.1:1 x"}, {"AWS_SESSION_TOKEN": "line\n"}])
@pytest.mark.parametrize("ask", [lambda at, given: Storage.at(at, given).stat("x"), open_shard], ids=["stat", "open"])
def test_a_setting_that_delta_rs_panics_at_is_a_storage_error(
    wrong: dict[str, str], ask: Callable[[str, dict[str, str]], object]
) -> None:
    """A panic is no `Exception`: who catches those would not hear of it, nor who waits for them."""
    given = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "x", "AWS_ALLOW_HTTP": "true"}
    given |= {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", **wrong, "max_retries": "0"}
    with pytest.raises(StorageError) as failed:
        ask("s3://bucket/x", given)
    assert SECRET not in str(failed.value)


class PanicException(BaseException):
    """A panic of Rust's, by its name; it is no `Exception` either."""


@pytest.mark.parametrize(("at", "has_settings"), [("s3://bucket/x", True), ("/somewhere/x", False)])
def test_settings_are_suspected_of_a_panic_only_where_there_are_some(at: str, has_settings: bool) -> None:
    """On a disk it is of something else: a damaged file, say."""
    with pytest.raises(StorageError, match=r"reading x.* failed") as failed, Storage.at(at, {}).errors("reading x"):
        raise PanicException("alice")
    assert ("settings" in str(failed.value)) is has_settings
