"""Explanations: plans, and what holds a frontier back."""
