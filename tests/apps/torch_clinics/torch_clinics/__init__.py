"""Clinics that train a network of PyTorch."""
