"""The bytes of one connection, bounded in both directions.

    client ──► at most READ_AHEAD_BYTES ahead of the session ──► frames
    client ◄── at most WRITE_AHEAD_BYTES that the kernel did not take ◄── a session that waits for room

A session that waits for room longer than `stall_seconds` ends with its connection: a client that reads nothing holds
no more than that.

Messages of one answer are sent together: a system call for each costs more than the rest of a small answer. The wire
sends them where the session waits for its client or for room, from SEND_BYTES on, and after SEND_SECONDS at the latest.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator

from tidemark_pgwire.errors import ClientProtocolError, ConnectionClosed

READ_AHEAD_BYTES = 64 * 1024
WRITE_AHEAD_BYTES = 256 * 1024
SEND_BYTES, SEND_SECONDS = 16 * 1024, 0.01
MAX_STARTUP_BYTES = 10_000
CLOSE_SECONDS = 2.0
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 15), (socket.TCP_KEEPCNT, 4))
_HEADER = struct.Struct("!cI")
COPY_DATA, COPY_BYTES_MAX = b"d", 1 << 30


class Wire(asyncio.Protocol):
    """`lost`: done once the client is gone. `stall_seconds`: how long a write waits for the client."""

    def __init__(self, stall_seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._stall_seconds = stall_seconds
        self._received, self._wanted, self._left = bytearray(), 0, 0
        self._more: asyncio.Future[None] | None = None
        self._paused_reading = False
        self._room: asyncio.Future[None] | None = None
        self._unsent, self._unsent_bytes = list[bytes](), 0
        self._sending: asyncio.TimerHandle | None = None
        self._made: asyncio.Future[None] = self._loop.create_future()
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self.encrypted = self._aborted = False

    # --- the transport's calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._aborted:
            transport.abort()
            return
        transport.set_write_buffer_limits(high=WRITE_AHEAD_BYTES)
        if not self.encrypted and (under := transport.get_extra_info("socket")) is not None:
            under.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in _KEEPALIVE:
                under.setsockopt(socket.IPPROTO_TCP, option, value)
            # TLS reads its first bytes itself. Python 3.11.2 begins to read after this call, paused or not
            self._loop.call_soon(self._pause_unless_wanted)
        if not self._made.done():
            self._made.set_result(None)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) >= max(self._wanted, READ_AHEAD_BYTES):
            self._pause()
        self._wake()

    def eof_received(self) -> bool:
        self._end()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._end()

    def pause_writing(self) -> None:
        self._room = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._room = None

    def _end(self) -> None:
        if not self.lost.done():
            self.lost.set_result(None)
        self._wake()
        self.resume_writing()

    def _wake(self) -> None:
        if self._more is not None and not self._more.done():
            self._more.set_result(None)

    def _pause_unless_wanted(self) -> None:
        if not self._wanted:
            self._pause()

    def _pause(self) -> None:
        if not self._paused_reading and self._transport is not None:
            self._paused_reading = True
            self._transport.pause_reading()

    # --- reading ---

    async def first_byte(self) -> bytes:
        """The first byte that the client sends, which stays to be read, also by TLS. Empty where none comes."""
        await asyncio.wait({self._made, self.lost}, return_when=asyncio.FIRST_COMPLETED)
        under = self._transport.get_extra_info("socket") if self._transport is not None else None
        if under is None or self.lost.done():
            return b""
        try:
            with under.dup() as same:  # the transport has a reader of its own
                return await self._peeked(same)
        except OSError:
            return b""

    async def _peeked(self, same: socket.socket) -> bytes:
        readable: asyncio.Future[None] = self._loop.create_future()

        def set_readable() -> None:
            if not readable.done():
                readable.set_result(None)

        self._loop.add_reader(same, set_readable)
        try:
            await asyncio.wait({readable, self.lost}, return_when=asyncio.FIRST_COMPLETED)
            return same.recv(1, socket.MSG_PEEK) if readable.done() else b""
        finally:
            self._loop.remove_reader(same)

    async def exactly(self, size: int) -> bytes:
        """The next bytes. Raises ConnectionClosed."""
        await self._wait_for_bytes(size)
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken

    async def _wait_for_bytes(self, size: int) -> None:
        """Wait until so many bytes are received. Raises ConnectionClosed."""
        while len(self._received) < size:
            if self.lost.done():
                raise ConnectionClosed
            self._wanted = size
            self.send()
            if self._paused_reading and self._transport is not None:
                self._paused_reading = False
                self._transport.resume_reading()
            self._more = self._loop.create_future()
            await self._more
        self._wanted = 0

    async def startup_packet(self) -> bytes:
        """The body of a packet before the session: it has no type. Raises ConnectionClosed, ClientProtocolError."""
        (size,) = struct.unpack("!I", await self.exactly(4))
        if not 8 <= size <= MAX_STARTUP_BYTES:
            raise ClientProtocolError(f"invalid length of startup packet: {size}")
        return await self.exactly(size - 4)

    async def frame(self, max_bytes: int) -> tuple[bytes, bytes]:
        """The type and the body of the next message. Raises ConnectionClosed, ClientProtocolError."""
        kind, size = await self.head(max_bytes)
        return kind, await self.body(size)

    def frame_at_hand(self, max_bytes: int) -> tuple[bytes, bytes] | None:
        """The next message, if it is one for `frame` and the client has sent all of it already."""
        if self._left or len(self._received) < _HEADER.size:
            return None
        kind, size = _HEADER.unpack_from(self._received)
        if kind == COPY_DATA or not 4 <= size <= max_bytes or len(self._received) <= size:
            return None
        body = bytes(self._received[_HEADER.size : size + 1])
        del self._received[: size + 1]
        return kind, body

    async def next_frame(self, max_bytes: int) -> tuple[bytes, bytes] | None:
        """The next message, for which the client has all time; None: `head` is to read it, as it comes in parts. Raises
        ConnectionClosed."""
        if (found := self.frame_at_hand(max_bytes)) is None and not self._left:
            await self._wait_for_bytes(_HEADER.size)
            found = self.frame_at_hand(max_bytes)
        return found

    async def head(self, max_bytes: int) -> tuple[bytes, int]:
        """The type of the next message, and how many bytes its body has. COPY's data may have more than `max_bytes`:
        they are read in parts. Unread parts of the message before are left out. Raises as `frame`."""
        async for _ in self.read_parts(self._left):
            pass
        kind, size = _HEADER.unpack(await self.exactly(_HEADER.size))
        if not 4 <= size <= (COPY_BYTES_MAX if kind == COPY_DATA else max_bytes):
            raise ClientProtocolError(f"invalid message length: {size} bytes, at most {max_bytes} are taken")
        self._left = size - 4
        return kind, self._left

    async def body(self, size: int) -> bytes:
        """The body of the message whose head was read. Raises ConnectionClosed."""
        taken = await self.exactly(size)
        self._left = 0
        return taken

    async def read_parts(self, size: int) -> AsyncIterator[bytes]:
        """The next `size` bytes, in parts of READ_AHEAD_BYTES at most. Raises ConnectionClosed."""
        while size:
            taken = await self.exactly(min(size, READ_AHEAD_BYTES))
            size -= len(taken)
            self._left = size
            yield taken

    @property
    def unread(self) -> int:
        """The bytes of the last message that nobody read."""
        return self._left

    async def next_kind(self) -> bytes:
        """The type of the next message, which stays to be read. Raises ConnectionClosed."""
        await self._wait_for_bytes(1)
        return bytes(self._received[:1])

    @property
    def has_received(self) -> bool:
        """Whether the client sent bytes that nobody has read yet."""
        return bool(self._received)

    # --- writing ---

    def write(self, data: bytes) -> None:
        self._unsent.append(data)
        self._unsent_bytes += len(data)
        if self._unsent_bytes >= SEND_BYTES:
            self.send()
        elif self._sending is None:
            self._sending = self._loop.call_later(SEND_SECONDS, self._send_late)

    def send(self) -> None:
        """Send what was written."""
        if not self._unsent:
            return
        data, self._unsent, self._unsent_bytes = b"".join(self._unsent), [], 0
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _send_late(self) -> None:
        self._sending = None
        self.send()

    @property
    def has_room(self) -> bool:
        """Whether `drain` would send what was written, and return at once."""
        return self._room is None and not self.lost.done()

    async def drain(self) -> None:
        """Send what was written, and return once there is room for more. Raises ConnectionClosed where the client is
        gone, or takes nothing for too long."""
        if self.lost.done():
            raise ConnectionClosed
        self.send()
        if (room := self._room) is None:
            return
        try:
            async with asyncio.timeout(self._stall_seconds):
                await asyncio.shield(room)
        except TimeoutError:
            self.abort()
            raise ConnectionClosed from None
        if self.lost.done():
            raise ConnectionClosed

    # --- the connection ---

    async def start_tls(self, context: ssl.SSLContext) -> None:
        """Raises ConnectionClosed where the handshake fails."""
        assert self._transport is not None
        self.send()
        self.encrypted = True
        try:
            upgraded = await self._loop.start_tls(self._transport, self, context, server_side=True)
        except (OSError, ssl.SSLError):
            raise ConnectionClosed from None
        if upgraded is None:
            raise ConnectionClosed
        self._paused_reading = False
        self.connection_made(upgraded)

    @property
    def application(self) -> str | None:
        """The protocol that TLS agreed on (ALPN)."""
        tls = self._transport.get_extra_info("ssl_object") if self._transport is not None else None
        found: str | None = tls.selected_alpn_protocol() if tls is not None else None
        return found

    @property
    def peer(self) -> str:
        found = self._transport.get_extra_info("peername") if self._transport is not None else None
        return f"{found[0]}:{found[1]}" if found else ""

    def finish(self) -> None:
        """Close once the client has what was written, or after a moment."""
        if self._transport is not None:
            self.send()
            self._close_once(self._transport)
            self._loop.call_later(CLOSE_SECONDS, self._transport.abort)

    async def close(self) -> None:
        """Send what was written, for a moment, and close."""
        if self._transport is None:
            return
        self.send()
        self._close_once(self._transport)
        await asyncio.wait({self.lost}, timeout=CLOSE_SECONDS)
        self._transport.abort()

    @staticmethod
    def _close_once(transport: asyncio.Transport) -> None:
        if not transport.is_closing():  # in Python 3.11.2, TLS that is closed twice cannot be aborted
            transport.close()

    def abort(self) -> None:
        """Close at once, also before the transport is there."""
        self._aborted = True
        if self._transport is not None:
            self._transport.abort()
        self._end()
