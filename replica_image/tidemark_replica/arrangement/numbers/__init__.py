"""Exact numbers under retraction: sums as linear combinations of digits, rounded once, when read.

A value is cut into digits in base 2^32, each in an int64. Contributions are added digit by digit, *without carrying*,
so a state is a linear function of the rows in it: what goes in and out again leaves exactly nothing, in whatever order
and batches it came. As long as a group holds at most `MAX_ROWS` rows each digit's final value fits (what it passes
through wraps around harmlessly); a larger group is an error, not a wrong number.
"""

MAX_ROWS = 1 << 30
"""Digits are below 2^33 in size, so sums of 2^30 of them stay below 2^63."""
