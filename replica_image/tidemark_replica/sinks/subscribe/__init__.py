"""The subscribe sink (`subscribe.py`) and the division of updates into batches (`subscribe_batches.py`)."""
