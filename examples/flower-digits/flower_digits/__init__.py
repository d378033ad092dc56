"""Handwritten digits among members who pay for their updates."""
