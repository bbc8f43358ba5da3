"""Nexmark as a source: people who open auctions and bid on them, each event a function of the seed and its number
(`events.py`); a binding is a range of events (`source.py`)."""
