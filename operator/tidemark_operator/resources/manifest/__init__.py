"""Manifests of the four kinds as typed views."""
