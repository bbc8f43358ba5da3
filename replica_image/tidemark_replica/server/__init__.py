"""The replica's gRPC endpoint. Read `server.py` first (frames to commands, responses to frames), then `epoch_gate.py`
(which client is served)."""
