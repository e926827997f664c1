"""Hermes core."""
