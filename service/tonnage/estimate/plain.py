"""Weights and the caller's reserve: a card that is neither for serving nor for training."""

from tonnage.estimate.weights import disk_bytes, whole_model_bytes
from tonnage.spec.report import Account, Finding, GpuLoad, Host, MemoryItem, PhaseItems, exactly
from tonnage.spec.workload import Workload

_UNKNOWN = (
    "cache: no context or concurrency stated",
    "activations and engine workspaces: no serving or training stated",
    "device context and communication buffers",
)
