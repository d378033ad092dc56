"""Clinics of whom some lie, on a federation of processes."""
