"""What people would use instead: each on the same data, in the same run, with its results compared to ours."""
