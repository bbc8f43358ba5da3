"""The command loop: one thread owns the state, and it never waits for Spark, a disk or a client.

    mailbox ──► commands of the client ──► collected until InitializationComplete, then reconciled, then applied
            ──► ends of jobs           ──► their continuation
    every INTERVAL, and soon after most events: maintenance (steps that became possible, frontiers, compaction)

The replica goes on computing without a client.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from tidemark_protocol.errors import ProtocolError
from tidemark_protocol.messages.commands import Command, CreateInstance, Hello, InitializationComplete
from tidemark_replica.command_loop.compute_state import ComputeState
from tidemark_replica.events.client import Client
from tidemark_replica.events.mailbox import (
    ClientDisconnected,
    CommandsArrived,
    Event,
    LoopCall,
    Mailbox,
    needs_maintenance,
)

LOG = logging.getLogger(__name__)
INTERVAL_SECONDS = 0.05
AFTER_EVENT_SECONDS = 0.005
"""Maintenance follows an event after this time; events that arrive together share one maintenance."""


class CommandLoop:
    """Runs on the thread that calls `run`, until `stop`, until `spark_died`, or until a command ends the process."""

    def __init__(self, mailbox: Mailbox, state: ComputeState, spark_died: Callable[[], bool]) -> None:
        self._mailbox, self._state, self._spark_died = mailbox, state, spark_died
        self._client: Client | None = None
        self._collected: list[Command] | None = None
        self._stopping = False
        self.rounds = 0
        """The rounds of `run`: many a second, unless a disk blocks it."""

    def stop(self) -> None:
        """Ends `run`; callable from a signal handler or any thread."""
        self._stopping = True

    def run(self) -> bool:
        """True when stopped, False when Spark died. Raises ConfigChanged."""
        maintenance = time.monotonic()
        while not self._stopping:
            self.rounds += 1
            event = self._mailbox.take(maintenance)
            if event is not None:
                self.handle(event)
                if needs_maintenance(event):
                    maintenance = min(maintenance, time.monotonic() + AFTER_EVENT_SECONDS)
            if time.monotonic() >= maintenance:
                if self._spark_died():
                    return False
                if not self._state.maintain():
                    self._ask_client_to_connect_again()
                maintenance = time.monotonic() + INTERVAL_SECONDS
        return True

    def handle(self, event: Event) -> None:
        match event:
            case CommandsArrived(client, commands):
                try:
                    self._receive(client, commands)
                finally:
                    client.release_frame()
            case ClientDisconnected(client):
                if client is self._client:
                    self._detach_client()
            case LoopCall(run):
                run()

    def _receive(self, client: Client, commands: tuple[Command, ...]) -> None:
        for command in commands:
            if isinstance(command, Hello):
                self._attach_client(client)
            elif client is self._client:
                self._handle_command(client, command)

    def _attach_client(self, client: Client) -> None:
        """Serves the client from its Hello on. The gate admits newer epochs only, so an older client here was replaced
        already."""
        if self._client is not None and client.hello.epoch < self._client.hello.epoch:
            return
        self._detach_client()
        LOG.info("serving the client of epoch %s", client.hello.epoch)
        self._client, self._collected = client, []

    def _ask_client_to_connect_again(self) -> None:
        """Ends the client's connection, after what waits to be sent. Without a client the next one will do."""
        if self._client is not None:
            self._client.close()
            self._detach_client()

    def _detach_client(self) -> None:
        self._client, self._collected = None, None
        self._state.detach()

    def _handle_command(self, client: Client, command: Command) -> None:
        try:
            if isinstance(command, CreateInstance):
                self._state.create_instance(command.config)
            elif self._collected is None:
                self._state.apply(command)
            elif isinstance(command, InitializationComplete):
                collected, self._collected = self._collected, None
                self._state.reconcile(collected, client)
            else:
                self._collected.append(command)
        except ProtocolError as error:
            client.close(error)
            self._detach_client()
