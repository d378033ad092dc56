"""Hospitals that train together."""
