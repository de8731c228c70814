"""What the caller knows: measurements, pasted texts, a failure; and estimates that take it into account."""

from tonnage.evidence.answer import estimate, fields_of, with_evidence
from tonnage.evidence.log_text import Reading, read

__all__ = ["Reading", "estimate", "fields_of", "read", "with_evidence"]
