"""The kernels of loops."""
