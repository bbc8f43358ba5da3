"""Costs of single parts, each in one process without a system: calls and kernels of a step, a shard as it ages."""
