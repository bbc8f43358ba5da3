"""The kernels of window functions."""
