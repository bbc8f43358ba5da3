"""Explanations: plans, and the input, replica or condition that holds a frontier back."""
