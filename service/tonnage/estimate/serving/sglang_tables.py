"""What SGLang keeps beside weights: rotary tables, and the absorbed projections of latent attention."""

from tonnage.estimate.caches import decoder_groups
from tonnage.estimate.identity_cache import remembered
from tonnage.estimate.serving.sglang_settings import Settings
from tonnage.estimate.serving.vllm_weights import rotary_positions
from tonnage.estimate.weights import StageWeights
from tonnage.laws import serving_buffers
from tonnage.spec.model import Model
from tonnage.spec.workload import Workload

_ROTARY_ELEMENT = 4
"""CUDA keeps the rotary table in fp32, "for numerical stability". [bytes]"""


def beside_weights(workload: Workload, stage: StageWeights, chosen: Settings) -> int:
    """
    Tensors that loading brings beside the weights.

    Args:
        workload: Resolved card.
        stage: Pipeline stage.
        chosen: SGLang's settings.

    Returns:
        Rotary tables and copies of latent attention's projections. [bytes]
    """
    model, ranks = workload.model, chosen.attention_ranks
    element_bytes = 1 if workload.weight_format.family == "fp8" else chosen.element_bytes
    absorbed = _absorbed(model, stage.layers, ranks, element_bytes)
    if (model.model_type or "").startswith(chosen.release.computes_rotary):
        return absorbed
    local = (model.model_type or "").startswith(chosen.release.local_rotary)
    return absorbed + _rotary(model, stage.layers, chosen.element_bytes if chosen.rocm else _ROTARY_ELEMENT, local)


@remembered()
def _absorbed(model: Model, layers: tuple[int, ...], ranks: int, element_bytes: int) -> int:
    """w_kc and w_vc of deepseek_v2.py post_load_weights: copies of kv_b_proj, in fp8 where that is. [bytes]"""
    return sum(
        count
        * serving_buffers.absorbed_projections(
            kv_lora_rank=attention.kv_lora_rank or 0,
            heads=attention.num_attention_heads // ranks,
            qk_nope_head_dim=attention.qk_nope_head_dim or 0,
            v_head_dim=attention.v_head_dim,
            element_bytes=element_bytes,
        )
        for group, count in decoder_groups(model, layers or None)
        if (attention := group.layer.attention) is not None and attention.kind == "mla" and attention.window is None
    )


@remembered()
def _rotary(model: Model, layers: tuple[int, ...], element_bytes: int, local: bool) -> int:
    widths = {
        (group.layer.attention.rotary_dim, group.layer.attention.compress_ratio > 0)
        for group, _ in decoder_groups(model, layers or None)
        if group.layer.attention is not None and group.layer.attention.rotary in ("rope", "partial")
    }
    positions = rotary_positions(model, local=local, stacked=1)
    return sum(
        serving_buffers.rotary_cache(positions=positions, rotary_dim=width, element_bytes=element_bytes)
        for width, _ in widths
    )
