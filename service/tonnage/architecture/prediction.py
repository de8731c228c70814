"""Multi-token-prediction layers: in the checkpoint, outside the model that most engines load."""

import msgspec

from tonnage.architecture.fields import Fields
from tonnage.architecture.layers import last_layer
from tonnage.architecture.tensors import from_rows
from tonnage.spec.model import Tensor


def prediction_layers(fields: Fields) -> int:
    """How many such layers the config announces and its type is known to store. [unitless]"""
    return fields.count("mtp_layers") if fields.table.mtp_tensors else 0


def prediction_tensors(fields: Fields) -> tuple[Tensor, ...]:
    """A copy of the last decoder layer and what joins it to the model, for every prediction layer."""
    count = prediction_layers(fields)
    if not count:
        return ()
    own = [*last_layer(fields).tensors, *from_rows(fields, fields.table.mtp_tensors)]
    return tuple(
        msgspec.structs.replace(tensor, name=f"mtp.{tensor.name}", component="mtp", experts=tensor.experts * count)
        for tensor in own
    )
