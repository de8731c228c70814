"""Facts as the catalogue holds them: GPUs, packages, formats, optimizers. Every record names its source."""

from decimal import Decimal
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct


class MigProfile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One MIG slice of a GPU."""

    profile: str
    memory_usable_bytes: int
    max_instances: int
    compute_slices: int


class Gpu(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One accelerator."""

    id: str
    name: str
    vendor: str
    memory_nominal_bytes: int
    """As sold. [bytes]"""
    memory_device_bytes: int | None = None
    """What nvidia-smi or rocm-smi prints. [bytes]"""
    memory_usable_bytes: int
    """What the allocator can have (torch total), conservatively. [bytes]"""
    usable_confidence: Literal["seen", "derived", "recalled", "estimated"] = "seen"
    memory_type: str | None = None
    bandwidth_bytes_per_second: int | None = None
    compute_capability: str | None = None
    multiprocessors: int | None = None
    """Streaming multiprocessors or compute units: the device context grows with them. [unitless]"""
    form: str | None = None
    pcie: str | None = None
    nvlink_bytes_per_second: int | None = None
    nvlink_domain_max: int | None = None
    tdp_watts: int | None = None
    release_date: str | None = None
    tflops: dict[str, float] = {}
    native_dtypes: tuple[str, ...] = ()
    mig_profiles: tuple[MigProfile, ...] = ()
    unified_memory: bool = False
    aliases: tuple[str, ...] = ()
    source: str
    as_of: str | None = None
    notes: str | None = None


class Offer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One price of a package."""

    kind: Literal["on-demand", "spot", "marketplace", "capacity-block", "reserved", "package"]
    price: Decimal
    """Of the whole package for one `per`."""
    currency: str = "USD"
    per: Literal["hour", "day", "month", "term"] = "hour"
    term_hours: Annotated[int, Meta(ge=1)] | None = None
    """Length of a fixed term (per = term). [hours]"""
    minimum_hours: Annotated[int, Meta(ge=1)] | None = None
    hours_per_month: Annotated[int, Meta(ge=1)] = 730
    as_of: str | None = None
    """ISO date of the price; None: undated, needs confirmation."""
    source: str


class Package(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something one can order: a host with GPUs (SKU)."""

    id: str
    provider: str
    gpu: str
    gpus_per_host: int
    max_hosts: int = 1
    region: str | None = None
    name: str | None = None
    gpu_share: float | None = None
    vcpus: int | None = None
    host_memory_bytes: int | None = None
    disk_bytes: int | None = None
    interconnect: str | None = None
    delivery_days: int | None = None
    offers: tuple[Offer, ...] = ()
    source: str
    as_of: str | None = None
    notes: str | None = None


class WeightFormat(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    How quantized linears are stored; sizes are exact integers, never bits per weight.

    A matrix [out, in] takes its blocks, ceil(out * in / block_elements) * block_bytes, plus what goes with them:
    a scale of `scale_bytes` (and a zero of `zero_bits`) per group, `column_bytes` per input feature and
    `matrix_bytes` once. GGML types pack each row for itself.
    """

    id: str
    family: str
    kind: Literal["plain", "linear", "tensor-type", "file-mix"]
    """linear quantizes linears only; tensor-type is one GGML type; file-mix a GGUF file type, a mix of these."""
    block_elements: int = 1
    block_bytes: int = 2
    group_size: int | None = None
    """Input elements per scale; 0: one per output channel; -1: one per tensor; None: no scale. [elements]"""
    scale_bytes: int = 0
    zero_bits: int = 0
    block_shape: tuple[int, int] | None = None
    """Two-dimensional scale tiles [out, in] (fp8 128x128); `scale_bytes` is per tile then."""
    nested_block: int | None = None
    """bitsandbytes double quantization: absmax values are quantized in blocks of this many. [values]"""
    column_bytes: int = 0
    """Per input feature: GPTQ's g_idx, EXL3's sign vector. [bytes]"""
    matrix_bytes: int = 0
    """Once per matrix: global scale, code book. [bytes]"""
    experts_only: bool = False
    """Only expert matrices are quantized (MXFP4 of gpt-oss)."""
    experts_only_in_mixtures: bool = False
    """In a model with experts only these are quantized, in a dense one every linear (NVFP4 checkpoints)."""
    quantizes_embedding: bool = False
    quantizes_lm_head: bool = False
    quantizes_vision: bool = False
    """Linears of vision and audio towers are quantized unless the checkpoint names them."""
    skips: tuple[str, ...] = ()
    """Module names left in 16 bit by default."""
    base_type: str | None = None
    """file-mix: the GGML tensor type its matrices start from, before llama.cpp raises some."""
    minimum_compute_capability: str | None = None
    native_dtype: str | None = None
    """Entry of Gpu.native_dtypes that computes in it natively."""
    engines: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    nominal_bits: float | None = None
    effective_bits: float | None = None
    """Bits per quantized weight (file-mix: per weight of Llama-3.1-8B), for display only. [bits]"""
    source: str
    notes: str | None = None


class KvFormat(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Element type of a KV cache."""

    id: str
    block_elements: int = 1
    block_bytes: int = 2
    per_head_bytes: int = 0
    """Extra per token and head for scale and zero (int8 per token and head). [bytes]"""
    aliases: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    minimum_compute_capability: str | None = None
    source: str
    notes: str | None = None

    def row_bytes(self, elements: int) -> int:
        """One head's row of one token. [bytes]"""
        return -(-elements // self.block_elements) * self.block_bytes + self.per_head_bytes


class Optimizer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """States an optimizer keeps per trainable parameter."""

    id: str
    name: str
    states: int
    """How many state tensors of the parameter's shape. [unitless]"""
    law: str
    """Function in `laws/optimizer.py` that gives the bytes."""
    state_bytes: float | None = None
    """Bytes per element and state; None: the parameter's own dtype. [bytes]"""
    block_size: int | None = None
    minimum_elements: int = 0
    """Smaller tensors keep fp32 states. [elements]"""
    paged: bool = False
    arguments: dict[str, Any] = {}
    aliases: tuple[str, ...] = ()
    source: str
    notes: str | None = None
