"""An answer to its client, in chunks, as that takes it.

chunk ──taken──► chunk ──not taken──► others wait for room?   no: it has all the time it wants (somebody reads)
                                                              yes: the call ends, and its room is theirs
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable
from typing import Any

from tidemark_operator.errors import NotTaken
from tidemark_operator.gateway.admission.fair_queue import Hold

PATIENCE_SECONDS = 10.0


async def give(context: Any, messages: AsyncIterable[Any], held: Hold) -> None:
    """To the end; raises NotTaken where the client takes nothing for a while, and what it holds is wanted."""
    async for message in messages:
        write = asyncio.ensure_future(context.write(message))
        try:
            while not (await asyncio.wait({write}, timeout=PATIENCE_SECONDS))[0]:
                if held.is_wanted:
                    raise NotTaken(
                        f"the answer was not taken for {PATIENCE_SECONDS:.0f} s while others waited for room: ask "
                        "again and read it at once, or limit it"
                    )
            write.result()
        finally:
            write.cancel()
