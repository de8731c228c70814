"""Items of an estimate with their formula, taken from the code of the law itself, and the numbers put in."""

from tonnage.explain.answer import explained

__all__ = ["explained"]
