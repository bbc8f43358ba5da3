"""The savings of shared arrangements: `python -m bench.sharing`."""
