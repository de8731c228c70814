"""From a sizing card to an order: which package serves it, which does not, why, and what one change would do."""

from tonnage.fit.answer import fit
from tonnage.fit.models import models

__all__ = ["fit", "models"]
