"""Facts as the catalogue holds them: GPUs, packages, formats, optimizers. Every record names its source."""

from decimal import Decimal
from math import ceil
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from tonnage.laws.kv_cache import row
from tonnage.units import ceil_div

Confidence = Literal["seen", "derived", "recalled", "estimated"]
"""
How a capacity is known. seen: printed by this board; derived: printed by a board of the same capacity class, or the
driver's total less the reserve of the class; recalled: from memory; estimated: no total was seen at all.
"""

Date = Annotated[str, Meta(pattern=r"^20\d\d-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?$")]
"""ISO date, or year and month where no day is known."""


class MigProfile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One MIG slice of a GPU."""

    profile: str
    memory_usable_bytes: int
    usable_confidence: Confidence = "seen"
    max_instances: int
    compute_slices: int


class Gpu(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One accelerator."""

    __hash__ = object.__hash__  # one record per load: results are remembered by identity, not by its content

    id: str
    name: str
    vendor: str
    memory_nominal_bytes: int
    """As sold. [bytes]"""
    memory_device_bytes: int | None = None
    """What nvidia-smi or rocm-smi prints. [bytes]"""
    memory_usable_bytes: int
    """What the allocator can have (torch total), conservatively. [bytes]"""
    memory_usable_expected_bytes: int | None = None
    """The total most logs print, where it differs from the smallest seen: engines claim fractions of it. [bytes]"""
    usable_confidence: Confidence = "seen"
    memory_type: str | None = None
    bandwidth_bytes_per_second: int | None = None
    compute_capability: str | None = None
    multiprocessors: int | None = None
    """Streaming multiprocessors or compute units: the device context grows with them. [unitless]"""
    l2_cache_bytes: int | None = None
    """L2 cache: compilers flush it with a buffer of its size while they time kernels. [bytes]"""
    form: str | None = None
    pcie: str | None = None
    nvlink_bytes_per_second: int | None = None
    nvlink_domain_max: int | None = None
    tdp_watts: int | None = None
    release_date: str | None = None
    tflops: dict[str, float] = {}
    """Dense peak by dtype. [10^12 operations per second]"""
    native_dtypes: tuple[str, ...] = ()
    mig_profiles: tuple[MigProfile, ...] = ()
    mig_parent: str | None = None
    """Of a MIG slice: the whole GPU it is cut from."""
    unified_memory: bool = False
    """One pool with the host: budget against what the host leaves."""
    ecc: str | None = None
    aliases: tuple[str, ...] = ()
    """Other names of exactly this board."""
    default_for: tuple[str, ...] = ()
    """Loose names of several boards that are taken for this one, with an assumption in the answer."""
    other_memory_bytes: tuple[int, ...] = ()
    """Nominal memory of boards that share its loose name and have no record of their own. [bytes]"""
    source: str
    memory_source: str = ""
    """Where the device total and the usable total come from."""
    as_of: Date | None = None
    notes: str | None = None

    @property
    def computes_bf16(self) -> bool:
        """Whether bf16 is more than a storage format here (not before Ampere and CDNA)."""
        return "bf16" in self.native_dtypes

    @property
    def is_desktop(self) -> bool:
        """Sold for desktops, whose screens and programs share its memory."""
        return "GeForce" in self.name or "Radeon RX" in self.name


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
    as_of: Date | None = None
    """Date of the price; None: undated, needs confirmation."""
    as_of_note: str | None = None
    confirmed: bool = True
    """False where the source itself is doubtful (a blog, a currency not stated): needs confirmation."""
    source: str


class Package(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something one can order: a host with GPUs (SKU)."""

    id: str
    provider: str
    gpu: str
    gpus_per_host: Annotated[int, Meta(ge=1)]
    max_hosts: int = 1
    """Bound of the search over several hosts, not a quota. [unitless]"""
    region: str | None = None
    name: str | None = None
    gpu_share: Annotated[float, Meta(gt=0, le=1)] | None = None
    """Part of one GPU that is sold (vGPU); None: whole GPUs. [fraction]"""
    gpu_memory_usable_bytes: Annotated[int, Meta(ge=1)] | None = None
    """What this package exposes per GPU where that differs from the GPU's own. [bytes]"""
    vcpus: int | None = None
    host_memory_bytes: int | None = None
    disk_bytes: int | None = None
    interconnect: str | None = None
    delivery_days: int | None = None
    offers: tuple[Offer, ...] = ()
    source: str
    as_of: Date | None = None
    notes: str | None = None


class WeightFormat(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    How quantized linears are stored; sizes are exact integers, never bits per weight.

    A matrix [out, in] takes its blocks, ceil(out * in / block_elements) * block_bytes, plus what goes with them:
    a scale of `scale_bytes` (and a zero of `zero_bits`) per group, `column_bytes` per input feature and
    `matrix_bytes` once. GGML types pack each row for itself.
    """

    __hash__ = object.__hash__  # as a Gpu's

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
    plain_experts: bool = False
    """Stacked experts stay in 16 bit, since only linears are replaced."""
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
    as_gguf: str | None = None
    """Format of the GGUF file that the same numbers are published in: what llama.cpp and Ollama read in its place."""
    minimum_compute_capability: str | None = None
    minimum_of_tools: dict[str, str] = {}
    """Compute capability that an engine or framework asks for, where it is another."""
    native_dtype: str | None = None
    """Entry of Gpu.native_dtypes that computes in it natively."""
    training: Literal["full", "frozen_base", "dequantized"] = "full"
    """What a trainer does with such a base: trains it, only freezes it below adapters, or dequantizes the file on loading."""
    engines: tuple[str, ...] = ()
    kernels: dict[str, tuple[str, ...]] = {}
    """By engine: vendors and architectures other than NVIDIA's on which its kernels are established."""
    weight_only_engines: tuple[str, ...] | None = None
    """Engines whose kernels widen the weights where a GPU lacks `native_dtype`; None: all of `engines`."""
    aliases: tuple[str, ...] = ()
    endings: tuple[str, ...] = ()
    """Endings of repository names that say a copy is stored in this format."""
    nominal_bits: float | None = None
    effective_bits: float | None = None
    """Bits per quantized weight (file-mix: per weight of Llama-3.1-8B): all there is for a bare count. [bits]"""
    source: str
    notes: str | None = None

    def least_capability(self, tool: str | None) -> str | None:
        """Oldest NVIDIA generation on which an engine or framework reads it."""
        return self.minimum_of_tools.get(tool or "", self.minimum_compute_capability)

    def of_count(self, parameters: int) -> int:
        """So many parameters, when nobody knows the matrices they form. [bytes]"""
        if self.effective_bits is None:
            return ceil_div(parameters * self.block_bytes, self.block_elements)
        return ceil(parameters * self.effective_bits / 8)


class KvFormat(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Element type of a KV cache."""

    __hash__ = object.__hash__  # as a Gpu's

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
        return row(
            elements=elements,
            block_elements=self.block_elements,
            block_bytes=self.block_bytes,
            per_head_bytes=self.per_head_bytes,
        )


class Optimizer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """States an optimizer keeps per trainable parameter."""

    __hash__ = object.__hash__  # as a Gpu's

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
    method: str | None = None
    """Training method that is this optimizer around another one, its `projected`."""
    arguments: dict[str, Any] = {}
    aliases: tuple[str, ...] = ()
    source: str
    notes: str | None = None


class ModelFacts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One published model: its config.json fields, its counts and how far they are trusted."""

    id: str
    family: str
    licence: str | None = None
    architectures: tuple[str, ...] = ()
    config: dict[str, Any]
    """Fields of config.json as published."""
    weight_format: str | None = None
    """Format of a checkpoint whose config.json does not state it (hf_quant_config.json and the like)."""
    parameters_total: int
    parameters_active: int | None = None
    parameters_by_component: dict[str, int] = {}
    trust: Literal["exact", "checked", "recalled"]
    """
    exact: literal config whose count is the published one (or differs by what was recomputed); checked: literal config
    or count checked, not both; recalled: from memory, so that whatever a count cannot check needs confirmation.
    """
    count_check: Literal["exact", "explained", "attributed", "rounded", "estimate", "none"]
    """How the counted total compares with the published one; `none`: no published count."""
    count_explanation: str | None = None
    published_parameters: int | None = None
    published_repository: str | None = None
    fields_fitted_to_count: tuple[str, ...] = ()
    """Fields chosen so that the count comes out."""
    same_architecture: tuple[str, ...] = ()
    """Other repositories with the same architecture and sizes (base, instruct, fine-tunes)."""
    aliases: tuple[str, ...] = ()
    source: str
    as_of: Date | None = None
    notes: str | None = None
