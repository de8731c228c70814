"""
Hugging Face configs and GGUF headers read into `tonnage.spec.model.Model`.

What differs between model types is data (`architectures.toml`); one builder per mechanism is code.
"""

from tonnage.architecture.counts import parameters_by_component
from tonnage.architecture.description import describe_layers
from tonnage.architecture.reader import count_only, read_config, read_gguf

__all__ = ["count_only", "describe_layers", "parameters_by_component", "read_config", "read_gguf"]
