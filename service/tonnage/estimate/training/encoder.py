"""
Encoder layers that norm the sum of branch and residual, and layers that attend to an encoder's output; on the tape.

Source:
    huggingface/transformers@v5.24.0 src/transformers/models/bert/modeling_bert.py, t5/modeling_t5.py
"""

from tonnage.estimate.training import operators as op
from tonnage.estimate.training.eager import Block
from tonnage.estimate.training.tape import Tensor
from tonnage.estimate.training.usual import encodes_only
from tonnage.spec.model import Model


class EncoderBlock(Block):
    """A layer as BERT writes it."""

    def _normed_after(self, x: Tensor) -> Tensor:
        h, weights = self.mix(x)
        h = op.dropout(self.tape, h, active=self.drops_stream)
        h = self.norm(op.add(self.tape, h, x), "1")
        x = h
        h = self.feed(h)
        h = op.dropout(self.tape, h, active=self.drops_stream)
        h = self.norm(op.add(self.tape, h, x), "2")
        del weights
        return h


def norms_embeddings(model: Model) -> bool:
    """Whether embeddings are normed (and dropped out) before the first layer."""
    return any(t.component == "norm" and "embed" in t.name for t in model.outside)


def norms_output(model: Model) -> bool:
    """Whether a norm follows the last layer."""
    outside = [t for t in model.outside if t.component == "norm" and "embed" not in t.name]
    return bool(outside) or not encodes_only(model)
