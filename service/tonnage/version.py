"""Versions that an answer carries."""

__version__ = "0.1.0"
METHOD_VERSION = "1"
"""Rises with every change of a law that moves a number."""
