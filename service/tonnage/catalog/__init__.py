"""What exists: models, GPUs, packages, formats, optimizers, engines; and cards resolved against it."""

from tonnage.catalog.contents import Catalog
from tonnage.catalog.loader import load_catalog

__all__ = ["Catalog", "load_catalog"]
