"""The kernels of groups that are evaluated again as a whole."""
