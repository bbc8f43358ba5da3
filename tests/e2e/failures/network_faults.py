"""The faults of a network: toxiproxy between a controller and its replicas.

    controller ──TCP──► toxiproxy ──TCP──► Bridge ──unix socket──► replica

toxiproxy knows TCP alone, and a replica listens on a network address with TLS only: the bridge leads to its socket.
Toxics have real effects: bytes that are swallowed, a connection that ends in the middle of a message.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from typing import Any

from tests.ports import free_port
from tests.waiting import BOUND, until
from tidemark_devcluster.programs.build import ensure_toxiproxy
from tidemark_devcluster.programs.progress import ProgressOutput

ANSWER_SECONDS = 5.0


class Bridge:
    """Listens on a loopback port; each connection goes on to the unix socket."""

    def __init__(self, path: str) -> None:
        self._path, self.port = path, 0
        self._ready, self._ended = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="bridge", daemon=True)
        self._thread.start()
        assert self._ready.wait(BOUND)

    async def _serve(self) -> None:
        """Serve until the bridge is closed; connections that are there then end with it."""
        self._loop = asyncio.get_running_loop()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._ended.wait()
        server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_unix_connection(self._path)
        except OSError:
            writer.close()  # nobody listens: the one who connects learns it as from a port that is closed
            return
        await asyncio.gather(_pump(reader, there[1]), _pump(there[0], writer))

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(BOUND)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except OSError:
        return  # the other side is gone
    finally:
        writer.close()


class Proxy:
    """One way through toxiproxy, to the bridge behind it."""

    def __init__(self, toxiproxy: Toxiproxy, name: str, upstream: int) -> None:
        self._toxiproxy, self._name = toxiproxy, name
        self.address = f"127.0.0.1:{free_port()}"
        toxiproxy.add(name, self.address, f"127.0.0.1:{upstream}")

    def swallow(self) -> None:
        """Nothing passes in either direction, and nobody is told: no end, no reset."""
        for stream in ("upstream", "downstream"):
            self.toxic("timeout", stream, timeout=0)

    def stand_still(self) -> None:
        """Swallow data on all ways of the program, also while a client does not read: a toxic waits for it."""
        self._toxiproxy.signal(SIGSTOP)

    def toxic(self, type_: str, stream: str, **attributes: int) -> None:
        name = f"{type_}-{stream}"
        path = f"/proxies/{self._name}/toxics"
        self._toxiproxy.ask("POST", path, name=name, type=type_, stream=stream, toxicity=1.0, attributes=attributes)

    def cut(self) -> None:
        """All connections end; new ones are refused until `join` or `heal`."""
        self._toxiproxy.ask("POST", f"/proxies/{self._name}", enabled=False)

    def join(self) -> None:
        """Connections are taken again; toxics stay."""
        self._toxiproxy.ask("POST", f"/proxies/{self._name}", enabled=True)

    def heal(self) -> None:
        """Without toxics again. Connections may end, also those of other ways of the program: a toxic whose client does
        not read holds the program's locks."""
        self._toxiproxy.signal(SIGCONT)
        try:
            for toxic in self._toxiproxy.ask("GET", f"/proxies/{self._name}/toxics"):
                path = f"/proxies/{self._name}/toxics/{toxic['name']}"
                self._toxiproxy.ask("DELETE", path, seconds=ANSWER_SECONDS)
            self.join()
        except OSError:
            self._toxiproxy.restart()


class Toxiproxy:
    """The program, on a port of its own."""

    def __init__(self, folder: Path) -> None:
        program = ensure_toxiproxy(os.environ, ProgressOutput(sys.__stderr__ or sys.stderr))
        self._port, self._log = free_port(), folder / "toxiproxy.log"
        self._command = [str(program), "-host", "127.0.0.1", "-port", str(self._port)]
        self._ways: dict[str, dict[str, str | bool]] = {}
        self._start()

    def _start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        until(self._answers)

    def add(self, name: str, listen: str, upstream: str) -> None:
        self._ways[name] = {"name": name, "listen": listen, "upstream": upstream, "enabled": True}
        self.ask("POST", "/proxies", **self._ways[name])

    def restart(self) -> None:
        """All ways are there again, without toxics."""
        self._process.kill()
        self._process.wait(BOUND)
        self._start()
        for way in self._ways.values():
            self.ask("POST", "/proxies", **way)

    def ask(self, method: str, path: str, *, seconds: float = BOUND, **body: Any) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}{path}",
            json.dumps(body).encode() if body else None,
            {"Content-Type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def _answers(self) -> bool:
        assert self._process.poll() is None, "toxiproxy has ended"
        try:
            self.ask("GET", "/proxies")
        except urllib.error.URLError:
            return False
        return True

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def stop(self) -> None:
        self.signal(SIGCONT)
        self._process.terminate()
        self._process.wait(BOUND)


@contextmanager
def toxiproxy(folder: Path) -> Iterator[Toxiproxy]:
    running = Toxiproxy(folder)
    try:
        yield running
    finally:
        running.stop()
