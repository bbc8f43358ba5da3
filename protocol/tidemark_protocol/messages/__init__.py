"""Messages between operator, planner and replica, as frozen dataclasses, and the order in which they may come."""
