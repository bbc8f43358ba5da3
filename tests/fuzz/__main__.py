"""`python -m tests.fuzz`: garbled frames, as many as TIDEMARK_FUZZ_FRAMES says, from the seed TIDEMARK_FUZZ_SEED.

The last line is JSON: what became of how many. A frame that breaks something ends it, with the conversation's name.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time

from tests.fuzz.campaign import Campaign

FRAMES = int(os.environ.get("TIDEMARK_FUZZ_FRAMES", "1000000"))
SEED = int(os.environ.get("TIDEMARK_FUZZ_SEED", "0"))


def main() -> None:
    logging.disable(logging.CRITICAL)
    began, campaign = time.monotonic(), Campaign(SEED)

    def tell(campaign: Campaign) -> None:
        print(f"{campaign.frames:,} frames in {campaign.conversations:,} conversations", file=sys.stderr)

    campaign.run(FRAMES, tell)
    outcomes = dict(campaign.outcomes.most_common())
    settings = {"frames": campaign.frames, "conversations": campaign.conversations, "seed": SEED}
    print(json.dumps({**settings, "seconds": round(time.monotonic() - began), "outcomes": outcomes}))


if __name__ == "__main__":
    main()
