"""Answers for people: terminal tables, Markdown summaries, bars, lists. Pure functions of the answer types."""

from tonnage.render import markdown, svg, table
from tonnage.render.lists import table_csv

__all__ = ["markdown", "svg", "table", "table_csv"]
