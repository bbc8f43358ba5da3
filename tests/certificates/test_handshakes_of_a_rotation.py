"""Real handshakes through a whole rotation of the authority: at no step is a new connection refused.

The clock of the operator is put forward to today, which is the one by which handshakes are judged: the authority hands
over in the last of the days before.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

from tests.certificates.peers import INCARNATION, described, replica, run
from tests.certificates.samples import DAY_MS, R1, R1_PLACE, R2, R2_PLACE, Clock
from tidemark_operator.certificates.authority import AuthorityStep
from tidemark_operator.certificates.certificate_rotation import CertificateRotation
from tidemark_operator.certificates.channel_factory import TlsChannels
from tidemark_operator.certificates.files import FolderStore
from tidemark_protocol.tls.folder import CertificateFolder
from tidemark_protocol.tls.identities import Identity

HOLDERS = ((R1_PLACE, R1), (R2_PLACE, R2))


def test_every_connection_of_a_rotation_comes_about(tmp_path: Path) -> None:
    """To servers that run throughout; and the connection that was made before it stays as good as it was."""
    store = FolderStore(tmp_path / "certificates")
    clock = Clock(int(time.time() * 1000) - 245 * DAY_MS)

    async def connect(keeper: CertificateRotation, identity: Identity) -> str:
        dialer = TlsChannels(identity, keeper.material)
        async with dialer.channel(address(identity), ()) as channel:
            return await described(channel)

    def address(identity: Identity) -> str:
        return f"unix://{tmp_path}/{identity.path[2]}"

    async def rotation() -> list[AuthorityStep]:
        keeper = CertificateRotation(store, clock)
        await keeper.start()
        clock.forward(days=244)
        for place, identity in HOLDERS:
            await keeper.hold(place, identity)
        steps, first = [keeper._current.authority.step], TlsChannels(R1, keeper.material).channel(address(R1), ())
        with ExitStack() as servers:
            for place, identity in HOLDERS:
                servers.enter_context(replica(address(identity), CertificateFolder(store.path(place))))
            assert await described(first) == INCARNATION
            for _ in range(23):
                for _, identity in HOLDERS:
                    assert await connect(keeper, identity) == INCARNATION
                assert await described(first) == INCARNATION
                clock.forward(days=1 / 24)
                await keeper.look()
                steps += [keeper._current.authority.step] if keeper._current.authority.step is not steps[-1] else []
        await first.close()
        return steps

    assert run(rotation()) == [
        AuthorityStep.STEADY,
        AuthorityStep.INTRODUCING,
        AuthorityStep.REPLACING,
        AuthorityStep.STEADY,
    ]
