"""An architecture in words, for people who read the catalogue."""

from tonnage.spec.model import Attention, Layer, LayerGroup, Model, Recurrent

_ATTENTION = {"full": "full attention", "encoder": "bidirectional attention", "cross": "cross-attention"}


def describe_layers(model: Model) -> str:
    """Layer map in words, such as "10 full attention + 52 sliding attention (1024); gated MLP 21504"."""
    mixers: dict[str, int] = {}
    feeds: dict[str, int] = {}
    for group in model.layers:
        _count(mixers, _mixer(group.layer), group)
        _count(feeds, _feed(group.layer), group)
    return "; ".join(part for part in (_joined(mixers), _joined(feeds)) if part)


def _count(counts: dict[str, int], words: str, group: LayerGroup) -> None:
    if words:
        counts[words] = counts.get(words, 0) + group.count


def _joined(counts: dict[str, int]) -> str:
    if len(counts) == 1:
        words, count = next(iter(counts.items()))
        return f"{count} x {words}"
    return " + ".join(f"{count} {words}" for words, count in counts.items())


def _mixer(layer: Layer) -> str:
    parts = [_attention(a) for a in (layer.attention, layer.cross_attention) if a is not None]
    if layer.recurrent is not None:
        parts.append(_recurrent(layer.recurrent))
    return " with ".join(parts)


def _attention(attention: Attention) -> str:
    if attention.kind == "mla":
        words = f"MLA (latent {attention.kv_lora_rank} + rope {attention.qk_rope_head_dim})"
    elif attention.kind in ("sliding", "chunked"):
        words = f"{attention.kind} attention ({attention.window})"
    else:
        words = _ATTENTION[attention.kind]
    if attention.index_topk:
        words += f", sparse top {attention.index_topk}"
    return words + (", cache of an earlier layer" if attention.kv_shared else "")


def _recurrent(recurrent: Recurrent) -> str:
    state = recurrent.state_heads * recurrent.state_rows * recurrent.state_columns
    return f"{recurrent.kind} (state {state})" if state else f"{recurrent.kind} (kernel {recurrent.conv_kernel})"


def _feed(layer: Layer) -> str:
    if layer.moe is not None:
        moe = layer.moe
        words = f"{moe.num_experts} experts of {moe.moe_intermediate_size}, {moe.num_experts_per_tok} per token"
        return words + (f", shared {moe.shared_intermediate_size}" if moe.shared_intermediate_size else "")
    if layer.mlp is not None:
        return f"{'gated ' if layer.mlp.gated else ''}MLP {layer.mlp.intermediate_size}"
    return ""
