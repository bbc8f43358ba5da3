"""The truth tables of conditions, and the shape of a frontier in status."""
