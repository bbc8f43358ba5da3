"""A certificate that is replaced while connections are open: none breaks, and the next one has it."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from pathlib import Path

import pytest

from tests.certificates.peers import echo, run, showing
from tests.certificates.samples import R1, R1_PLACE, material, written
from tidemark_operator.certificates.certificate_state import to_files
from tidemark_operator.certificates.files import FolderStore
from tidemark_operator.certificates.issue import KeyPair, new_authority
from tidemark_operator.certificates.store import Files
from tidemark_protocol.errors import CertificateUnreadable
from tidemark_protocol.tls.folder import CertificateFolder, CertificateWatch, Material
from tidemark_protocol.tls.identities import OPERATOR

NOW_MS = int(time.time() * 1000)
OURS, NEXT = new_authority(NOW_MS), new_authority(NOW_MS)
OPERATORS = material(OURS, OPERATOR, NOW_MS)


def bag(found: Material) -> Files:
    return to_files(found)


def shown_at(port: int, trusts: bytes) -> bytes:
    """The certificate that a new connection sees."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=trusts.decode())
    context.set_alpn_protocols(["h2"])
    with socket.create_connection(("127.0.0.1", port)) as raw:
        found = context.wrap_socket(raw, server_hostname=R1.host)
        der = found.getpeercert(binary_form=True)
        found.close()
    assert der is not None
    return ssl.DER_cert_to_PEM_cert(der).encode()


@pytest.mark.parametrize("signer", [OURS, NEXT], ids=["the same authority", "another authority"])
def test_a_stream_goes_on_while_the_certificate_is_replaced(signer: KeyPair, tmp_path: Path) -> None:
    """It loses nothing, even where nobody trusts its certificate any more; the next connection sees the new one."""
    store, old, new = FolderStore(tmp_path), material(OURS, R1, NOW_MS), material(signer, R1, NOW_MS)

    async def converse(port: int) -> list[bytes]:
        heard, address = [], f"127.0.0.1:{port}"
        async with (
            showing(OPERATORS, R1, address) as channel,
            showing(material(signer, OPERATOR, NOW_MS), R1, address) as another,
        ):
            stream = channel.stream_stream("/Echo/StreamStream")()
            for number in range(100):
                await stream.write(str(number).encode())
                heard.append(await stream.read())
                if number == 50:
                    kept = await store.load(R1_PLACE)
                    assert kept is not None
                    await store.write(R1_PLACE, bag(new), kept)
                    assert await asyncio.to_thread(shown_at, port, signer.certificate) == pem(new)
                    assert await another.unary_unary("/Echo/UnaryUnary")(b"x") == b"x"
            await stream.done_writing()
        return heard

    run(store.write(R1_PLACE, bag(old), None))
    with echo("127.0.0.1:0", CertificateFolder(store.path(R1_PLACE))) as port:
        assert shown_at(port, OURS.certificate) == pem(old)
        assert run(converse(port)) == [str(number).encode() for number in range(100)]


def pem(found: Material) -> bytes:
    """The certificate as PEM, as Python writes it."""
    return ssl.DER_cert_to_PEM_cert(ssl.PEM_cert_to_DER_cert(found.certificate.decode())).encode()


def test_half_written_files_are_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Files that are written one by one: the old certificate is shown until the new one is whole. Said once."""
    old, new = material(OURS, R1, NOW_MS), material(OURS, R1, NOW_MS)
    folder = written(tmp_path / "tls", old)
    with echo("127.0.0.1:0", folder) as port, caplog.at_level(logging.WARNING):
        assert shown_at(port, OURS.certificate) == pem(old)
        (folder.path / "tls.crt").write_bytes(new.certificate)
        assert [shown_at(port, OURS.certificate) for _ in range(3)] == [pem(old)] * 3
        assert [record.message for record in caplog.records] == [
            f"the previous certificate stays in use: {folder.path}: "
            "tls.crt and tls.key are not a PEM certificate and its key: renew both"
        ]
        (folder.path / "tls.key").write_bytes(new.key)
        assert shown_at(port, OURS.certificate) == pem(new)
        (folder.path / "ca.crt").unlink()
        assert shown_at(port, OURS.certificate) == pem(new)


def test_a_mounted_secret_is_read_behind_one_look_at_its_link(tmp_path: Path) -> None:
    """The kubelet turns the link to a folder: the three files are of one moment."""
    old, new = material(OURS, R1, NOW_MS), material(NEXT, R1, NOW_MS)
    for name, found in (("..1", old), ("..2", new)):
        written(tmp_path / name, found)
    (tmp_path / "..data").symlink_to("..1")
    for name in ("tls.crt", "tls.key", "ca.crt"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    renewed = CertificateWatch(CertificateFolder(tmp_path))
    assert renewed.current == old
    assert renewed.reload() is None
    (tmp_path / "..data_tmp").symlink_to("..2")
    (tmp_path / "..data_tmp").rename(tmp_path / "..data")
    assert renewed.reload() == new == renewed.current
    assert renewed.reload() is None


@pytest.mark.parametrize("wrong", ["no folder", "no key", "no certificate", "no authorities", "an encrypted key"])
def test_a_folder_to_begin_with_must_be_whole(wrong: str, tmp_path: Path) -> None:
    """The message names the file and tells nothing of what is in it."""
    found = material(OURS, R1, NOW_MS)
    folder = written(tmp_path / "tls", found) if wrong != "no folder" else CertificateFolder(tmp_path / "none")
    match wrong:
        case "no key":
            (folder.path / "tls.key").unlink()
        case "no certificate":
            (folder.path / "tls.crt").write_text("hunter2")
        case "no authorities":
            (folder.path / "ca.crt").write_text("hunter2")
        case "an encrypted key":
            (folder.path / "tls.key").write_bytes(encrypted(found.key))
    with pytest.raises(CertificateUnreadable) as refused:
        CertificateWatch(folder)
    assert str(folder.path) in str(refused.value)
    assert "hunter2" not in str(refused.value)


def encrypted(key: bytes) -> bytes:
    from cryptography.hazmat.primitives import serialization

    loaded = serialization.load_pem_private_key(key, None)
    encoding, kind = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return loaded.private_bytes(encoding, kind, serialization.BestAvailableEncryption(b"hunter2"))
