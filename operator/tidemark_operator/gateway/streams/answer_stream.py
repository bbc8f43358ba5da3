"""Sends an answer to its client in chunks, as the client takes them.

a chunk is not taken for CHUNK_SECONDS ──► does another query wait for the memory?
                                           no: the call goes on (somebody reads, page by page)
                                           yes: the call ends with AnswerNotRead, which frees its memory
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable
from typing import Any

from tidemark_operator.errors import AnswerNotRead
from tidemark_operator.gateway.admission.fair_queue import QueueHold

CHUNK_SECONDS = 10.0


async def send_answer(rpc: Any, messages: AsyncIterable[Any], held: QueueHold) -> None:
    """Send every message.

    Raises:
        AnswerNotRead: the client took nothing for CHUNK_SECONDS, and another query waits for memory that `held` has.
    """
    async for message in messages:
        write = asyncio.ensure_future(rpc.write(message))
        try:
            while not (await asyncio.wait({write}, timeout=CHUNK_SECONDS))[0]:
                if held.is_wanted:
                    raise AnswerNotRead(
                        f"the client read nothing of the answer for {CHUNK_SECONDS:.0f} s while other queries "
                        "waited for "
                        "memory: ask again and read at once, or use LIMIT"
                    )
            write.result()
        finally:
            write.cancel()
