"""Showing an audit: summary, verdict, figures, panels and the report."""
