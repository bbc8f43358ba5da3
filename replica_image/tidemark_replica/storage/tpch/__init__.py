"""TPC-H as a source: tpchgen-cli's data at the start, then a definite stream of order transactions."""
