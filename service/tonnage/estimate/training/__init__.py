"""Fine-tuning and training: states, activations, loss, sharding, phases."""

from tonnage.estimate.training.account import account, deciding

__all__ = ["account", "deciding"]
