"""The console: pages and an API for operators and members, on a book that already exists.

Needs the extra `console`. It reads a book and never writes to it, except a deposit and a settlement
that the operator confirms, by the same functions as the command line.
"""
