"""What exists: models, GPUs, packages, formats, optimizers, engines; and cards resolved against it."""

from tonnage.catalog.contents import Catalog
from tonnage.catalog.loader import load_catalog
from tonnage.catalog.resolve import resolve

__all__ = ["Catalog", "load_catalog", "resolve"]
