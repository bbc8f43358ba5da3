"""Secrets of sources: what is read, what is said where they cannot be, and that no text shows them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest

from tests.persist.stores.test_mounted_settings import mount
from tidemark_replica.storage.source_secrets import SecretFilter, SecretUnusable, SourceSecrets

GIVEN = {"username": "orders", "password": "s3cr&t /'pass", "sslmode": "on"}


def mounted(folder: Path, **entries: str) -> SourceSecrets:
    mount(folder / "orders-db", str(len(list(folder.glob("*/..[0-9]*")))), entries)
    return SourceSecrets(folder)


def test_changed_entries_are_read_at_the_next_connection(tmp_path: Path) -> None:
    """Without another process; an editor's line end is no part of a value, other spaces are."""
    secrets = mounted(tmp_path, username="orders", password=" first \n")
    assert secrets.read("orders-db") == {"username": "orders", "password": " first "}
    mounted(tmp_path, username="orders", password="second\r\n")
    assert secrets.read("orders-db")["password"] == "second"


def test_an_entry_that_is_missing_is_named_with_its_secret(tmp_path: Path) -> None:
    """And one that is optional is asked for without an error."""
    entries = mounted(tmp_path, username="orders").read("orders-db")
    with pytest.raises(SecretUnusable, match="entry password of Secret orders-db is missing: add it"):
        entries["password"]
    assert entries.get("password") is None
    assert "password" not in entries


def test_an_entry_that_is_no_text_is_said_to_be_none(tmp_path: Path) -> None:
    """A key store, say; other entries are read."""
    secrets = mounted(tmp_path, username="orders")
    (tmp_path / "orders-db" / "..data" / "store.jks").write_bytes(b"\xfe\xed\xfe\xed")
    entries = secrets.read("orders-db")
    with pytest.raises(SecretUnusable, match=r"entry store.jks of Secret orders-db is not UTF-8 text"):
        entries["store.jks"]
    assert entries["username"] == "orders"


def test_each_reason_that_a_secret_cannot_be_read_has_its_remedy(tmp_path: Path) -> None:
    """Not listed by the instance; listed and not created; too large."""
    listed = r"Secret {} is not mounted in this replica.*: list it in spec.sourceSecrets of the ComputeInstance"
    secrets = mounted(tmp_path)
    for folder, name in ((None, "orders-db"), (tmp_path, "other"), (tmp_path / "none", "orders-db")):
        with pytest.raises(SecretUnusable, match=listed.format(name)):
            SourceSecrets(folder).read(name)
    with pytest.raises(SecretUnusable, match="Secret orders-db does not exist or is empty: create it"):
        secrets.read("orders-db")
    mounted(tmp_path, password="x" * (3 << 20))
    with pytest.raises(SecretUnusable, match="Secret orders-db is larger than 1 MiB"):
        secrets.read("orders-db")


@pytest.mark.parametrize("name", ["../orders-db", "orders-db/..data", ".", "..", "", "Orders"])
def test_a_name_leads_to_no_other_folder(tmp_path: Path, name: str) -> None:
    """A plan may come from an older or a hostile client."""
    with pytest.raises(SecretUnusable, match="is not mounted"):
        mounted(tmp_path, **GIVEN).read(name)


def test_texts_have_the_names_of_entries_and_no_values(tmp_path: Path) -> None:
    """Plain, in Python's and in a URL's spelling, those of before a change too."""
    secrets = mounted(tmp_path, **GIVEN)
    secrets.read("orders-db")
    password = GIVEN["password"]
    texts = [
        f'password authentication failed for user "orders" with {password}',
        f"cannot connect with password={password!r}",
        f"postgresql://orders:{quote_plus(password)}@db:5432",
    ]
    mounted(tmp_path, username="orders", password="another one")
    secrets.read("orders-db")

    scrubbed = [secrets.scrub(text) for text in texts]
    assert scrubbed[0] == (
        'password authentication failed for user "<username of Secret orders-db>" with <password of Secret orders-db>'
    )
    assert not any("s3cr" in text or '"orders"' in text for text in scrubbed)
    assert secrets.scrub("it says: another one") == "it says: <password of Secret orders-db>"


def test_a_line_of_a_key_is_not_shown_either(tmp_path: Path) -> None:
    """An error of a parser quotes the line, not the file; what frames every key says nothing."""
    key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQEFAASC\n-----END PRIVATE KEY-----\n"
    secrets = mounted(tmp_path, key=key)
    secrets.read("orders-db")
    assert secrets.scrub("bad base64: 'hkiG9w0BAQEFAASC'") == "bad base64: '<key of Secret orders-db>'"
    assert secrets.scrub("no -----BEGIN PRIVATE KEY-----") == "no -----BEGIN PRIVATE KEY-----"


def test_a_short_value_is_replaced_as_a_whole_word(tmp_path: Path) -> None:
    """A user that is called as the Secret begins, or a flag, leaves other words alone."""
    secrets = mounted(tmp_path, username="orders", tls="true")
    secrets.read("orders-db")
    assert secrets.scrub("orders-db: untrue, reorders") == "orders-db: untrue, reorders"
    assert secrets.scrub("//orders:x@db") == "//<username of Secret orders-db>:x@db"


def test_what_was_read_is_bounded(tmp_path: Path) -> None:
    """A Secret that changes all day leaves the present values and those before."""
    secrets = mounted(tmp_path, password="password-0")
    for number in range(1, 20):
        secrets.read("orders-db")
        mounted(tmp_path, password=f"password-{number}")
    secrets.read("orders-db")
    assert secrets.scrub("password-19 password-18 password-17").endswith(" password-17")
    assert "password-18" not in secrets.scrub("password-18")
    assert len(secrets._markers) == 2


def test_no_log_shows_what_was_read(tmp_path: Path, capsys: Any) -> None:
    """Neither a message, nor its arguments, nor a traceback; nor do entries show themselves."""
    secrets = mounted(tmp_path, **GIVEN)
    entries = secrets.read("orders-db")
    handler, log = logging.StreamHandler(), logging.getLogger("tests.source_secrets")
    handler.addFilter(SecretFilter(secrets))
    log.addHandler(handler)
    try:
        log.warning("connecting with %s as %s", entries["password"], entries)
        try:
            raise ValueError(f"invalid dsn: {entries['password']}")
        except ValueError:
            log.exception("it failed")
    finally:
        log.removeHandler(handler)
    shown = capsys.readouterr().err
    assert "ValueError: invalid dsn: <password of Secret orders-db>" in shown
    assert "SecretEntries(orders-db: password, sslmode, username)" in shown
    assert "s3cr" not in shown
