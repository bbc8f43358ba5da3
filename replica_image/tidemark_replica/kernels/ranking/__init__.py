"""The kernels of ranked groups: top-k, min and max."""
