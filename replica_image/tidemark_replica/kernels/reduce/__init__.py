"""The kernels of aggregates that are sums of contributions."""
