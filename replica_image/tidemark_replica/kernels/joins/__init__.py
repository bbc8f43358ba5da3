"""The kernels of joins: linear, half-join, delta join."""
