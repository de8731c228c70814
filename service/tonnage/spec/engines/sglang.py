"""SGLang's releases: its default fraction, batch limits and what stands outside the fraction."""

from typing import Literal

from msgspec import Struct

from tonnage.spec.engine import Release


class MemoryTier(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Defaults for boards smaller than a size, smallest first."""

    below_bytes: int | None = None
    """Board size as nvidia-smi prints it; None: every larger board. [bytes]"""
    chunked_prefill_size: int
    cuda_graph_max_bs: int
    cuda_graph_max_bs_tp4: int
    """The same for four or more tensor-parallel ranks."""
    reserve: int = 0
    """What rule "board" keeps outside the fraction. [bytes]"""
    reserve_per_rank: int = 0


class Reserve(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What newer releases keep outside the fraction when they choose it. [bytes]"""

    constant: int
    per_prefill_token: int
    smallest_prefill: int
    """Prefill tokens that are counted at least. [tokens]"""
    per_graph_request: int
    per_rank: int
    per_prefill_graph: int = 0
    """Of each captured prefill size; 0 where prefill is not captured by default."""
    latent_prefill_graphs: int = 0
    """All prefill graphs of a model with latent attention."""
    least_on_large_boards: int
    large_board: int
    per_graph_request_of_group: int = 0
    """Of each captured request and data-parallel group of attention."""
    per_large_graph_request_of_group: int = 0
    """The same once more where more requests than `large_graph` are captured."""
    large_graph: int = 0
    """[requests]"""
    draft_model: int = 0
    """For a draft model that shares the target's embedding (EAGLE, MTP)."""
    standalone_draft: int = 0


class Process(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a process holds beside weights and cache; measured. [bytes]"""

    load_growth: int
    """Modules and first workspaces that loading itself brings in: what small models show beyond their tensors."""
    communicator_switched: int
    """Communicators before the weights, over NVLink."""
    communicator_pcie: int
    desktop: int
    """Screens and programs on boards for desktops, at most."""
    least_rocm: float
    """Part of a usual context on AMD that some boards open with. [fraction]"""
    unified_system: int
    """What the system and the engine's own processes hold where host and GPU share memory."""
    unified_compiled: int
    """What loading and capturing take there on the host's side, at most."""
    reductions_below: float
    """Captured reductions are at least the law over this; at most the law times the next. [unitless]"""
    reductions_above: float


class Sglang(Release, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One release of SGLang."""

    fraction_rule: Literal["ranks", "ranks_and_board", "board", "reserve"]
    """How mem_fraction_static is chosen: by ranks alone, by ranks and board size, from a reserve by board, or by its parts."""
    fractions: dict[str, float]
    """Fraction by tensor x pipeline ranks; more ranks take the last that they reach."""
    tiers: tuple[MemoryTier, ...]
    reserve: Reserve | None = None
    vision_cuts_stated: bool = False
    """The factor of multimodal models cuts a stated fraction too."""
    vision_factor: float = 1.0
    """What multimodal models multiply the fraction with, before the tower's size is looked at."""
    sizes_vision_tower: bool = False
    """The factor grows smaller with the tower."""
    board_draft: int = 0
    """What rule "board" keeps for a draft beside its tier. [bytes]"""
    board_standalone_draft: int = 0
    board_attention_groups: int = 0
    """What rule "board" keeps where attention runs over data-parallel groups. [bytes]"""
    attention_groups_are_ranks: bool = False
    """Attention over data-parallel groups has one group for every rank, whatever is stated; its head is whole too."""
    aiter_factor: float = 1.0
    """What AMD's attention kernels multiply the fraction with for long contexts, stated or not."""
    aiter_targets: tuple[str, ...] = ()
    """AMD targets whose default kernels those are."""
    captures_prefill: bool = False
    """Prefill sizes are captured by default, on NVIDIA and without pipeline stages."""
    prefill_with_drafts: bool = True
    prefill_with_adapters: bool = False
    prefill_with_latents: bool = True
    """Whether models with latent attention are captured too."""
    latent_prefill_tokens: int = 2_048
    """Largest captured prefill of a model with latent attention. [tokens]"""
    prefill_vision_models: tuple[str, ...] = ()
    """Model types that are captured though they see images."""
    uncaptured_models: tuple[str, ...] = ()
    """Model types whose prefill is never captured."""
    running_requests_cap_graphs: bool = False
    """A stated limit of running requests makes the reserve for graphs smaller."""
    drafting_requests: int | None = None
    """Running requests by default where a draft is used."""
    draft_cache_inside: bool = False
    """The draft's cache is part of what one token costs, not a pool outside the fraction."""
    least_running_requests: int = 2_048
    most_running_requests: int = 4_096
    requests_per_context: int = 512
    """Running requests for every context length that the pool holds."""
    spare_request_rows: int = 0
    spare_request_columns: int = 4
    sliding_ratio: float = 1.0
    """Tokens of sliding-window layers for every token of full-attention layers; 1: one pool for all."""
    sliding_models: tuple[str, ...] = ()
    """Model types whose windows get that pool."""
    whole_on_blackwell: tuple[str, ...] = ()
    """Of these, those that Blackwell's default attention kernel keeps in one pool."""
    latent_window_ratio: float = 0.1
    """The same ratio for models with compressed latents."""
    recurrent_ratio: float = 0.9
    """Recurrent states against full-attention cache, by memory."""
    recurrent_slots_per_request: int = 3
    recurrent_slots: int = 0
    """Slots where no limit of requests is stated; 0: as many as the ratio gives."""
    recurrent_slots_without_prefixes: int = 0
    """The same where past prompts are not kept (disable_radix_cache)."""
    graph_bytes_per_node: int
    """Of one layer at one captured size; measured. [bytes]"""
    graph_bytes_per_reduction: int
    """Of one all-reduce at one captured size, for every doubling of ranks; measured. [bytes]"""
    computes_rotary: tuple[str, ...] = ()
    """Beginnings of the model types whose rotary embedding is computed, not read from a table."""
    whole_embeddings: tuple[str, ...] = ()
    """Beginnings of the model types whose embedding is a plain nn.Embedding, whole on every rank."""
    local_rotary: tuple[str, ...] = ()
    """Beginnings of the model types whose windows have a rotary table of their own."""
    clones_shared_experts: tuple[str, ...] = ()
    """Model types whose shared expert is fused as one clone per rank, each cut over the ranks: whole on every rank."""
    cloned_routed_experts: int = 0
    """Only with that many routed experts. [unitless]"""
    cloned_capability: int = 0
    """Only on AMD, or from this major compute capability on. [unitless]"""
    graph_first_capture: int
    """Workspaces and modules that the first captured forward brings; measured. [bytes]"""
    prefill_graph_bytes: int = 0
    """Of one captured prefill size; measured. [bytes]"""
    graph_spread: float = 3.0
    process: Process


RELEASE = Sglang
