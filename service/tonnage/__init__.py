"""
How much GPU memory a model needs, which package to order, and how sure that is.

Programs start at `tonnage.library`, shells at `tonnage.cli`, servers at `tonnage.api.app`.
"""

from tonnage.version import __version__

__all__ = ["__version__"]
