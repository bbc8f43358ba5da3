"""Peers: other engines on the same data, in the same run, with their results compared to ours."""
