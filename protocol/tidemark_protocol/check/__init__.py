"""Checks of plans and commands before anyone acts on them."""
