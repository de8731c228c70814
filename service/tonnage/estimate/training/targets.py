"""Which linears carry an adapter: target names of PEFT, torchtune, litgpt and others against a model's own tensors."""

from msgspec import Struct

from tonnage.estimate.training.per_model import per_model
from tonnage.spec.model import LayerGroup, Model, Tensor

ALL_LINEAR = "all-linear"
_ATTENTION_IN = frozenset({"q", "k", "v", "qkv"})
_FEED = frozenset({"gate", "up", "gate_up", "down"})

SPELLINGS: dict[str, frozenset[str]] = {
    **dict.fromkeys(("q", "query", "q_proj", "wq", "query_proj", "lora_query"), frozenset({"q", "q_b"})),
    **dict.fromkeys(("k", "key", "k_proj", "wk", "lora_key"), frozenset({"k"})),
    **dict.fromkeys(("v", "value", "v_proj", "wv", "lora_value"), frozenset({"v"})),
    **dict.fromkeys(
        ("c_attn", "query_key_value", "qkv_proj", "qkv", "Wqkv", "wqkv", "W_pack", "attn_qkv", "in_proj"), _ATTENTION_IN
    ),
    **dict.fromkeys(
        ("o_proj", "output_proj", "proj", "projection", "dense", "wo", "out_proj", "attn_out", "lora_projection"),
        frozenset({"o"}),
    ),
    **dict.fromkeys(("gate_proj", "w_gate"), frozenset({"gate", "gate_up"})),
    **dict.fromkeys(("up_proj", "fc1", "fc_in", "c_fc", "dense_h_to_4h"), frozenset({"up", "gate_up"})),
    "gate_up_proj": frozenset({"gate", "up", "gate_up"}),
    **dict.fromkeys(("down_proj", "fc2", "fc_out", "dense_4h_to_h"), frozenset({"down"})),
    **dict.fromkeys(("mlp", "lora_mlp", "feed_forward"), _FEED),
    **dict.fromkeys(("head", "lm_head", "output", "lora_head", "embed_out"), frozenset({"head"})),
    "c_proj": frozenset({"o", "down"}),
    "w3": frozenset({"up"}),
    "experts": frozenset({"expert_gate", "expert_up", "expert_gate_up", "expert_down"}),
    "experts.gate_up_proj": frozenset({"expert_gate", "expert_up", "expert_gate_up"}),
    "experts.down_proj": frozenset({"expert_down"}),
    "shared_expert": frozenset({"shared_gate", "shared_up", "shared_gate_up", "shared_down"}),
}
"""Names used where a model calls the same linear otherwise, as roles."""

_EMBEDDINGS = frozenset({"embed_tokens", "wte", "word_embeddings", "embed_in", "tok_embeddings"})
_QWEN_FEED = {"w1": frozenset({"up"}), "w2": frozenset({"gate"})}
_LLAMA_FEED = {"w1": frozenset({"gate"}), "w2": frozenset({"down"})}


class Adapted(Struct, frozen=True):
    """A linear of a role with an adapter, in all layers that have it."""

    role: str
    in_features: int
    out_features: int
    layers: int
    experts: int = 1
    component: str = "attention"

    @property
    def copies(self) -> int:
        """Linears of this shape in the model. [unitless]"""
        return self.layers * self.experts


@per_model()
def adapted_linears(model: Model, targets: tuple[str, ...], experts_are_linears: bool) -> tuple[Adapted, ...]:
    """
    Linears that the targets name.

    Args:
        model: Architecture.
        targets: Names as the framework takes them: the model's own module names, or another framework's for the same
            linear, or `all-linear`.
        experts_are_linears: Experts are modules of their own, so that `all-linear` finds them (Transformers before 5).

    Returns:
        One entry per linear of a layer kind; empty when nothing matches.
    """
    found: list[Adapted] = []
    for group in model.layers:
        found += _in_group(group, targets, experts_are_linears)
    for tensor in model.outside:
        if tensor.linear and _matches_outside(tensor, targets):
            found.append(Adapted("head", tensor.in_features, tensor.out_features, 1, component="lm_head"))
        elif tensor.role == "embed" and not _EMBEDDINGS.isdisjoint(targets):
            found.append(Adapted("embed", tensor.out_features, tensor.in_features, 1, component="embedding"))
    if not any(a.role == "head" for a in found) and model.tie_word_embeddings and "head" in targets:
        found.append(Adapted("head", model.hidden_size, model.vocab_size, 1, component="lm_head"))
    return tuple(found)


@per_model()
def unmatched(model: Model, targets: tuple[str, ...], experts_are_linears: bool) -> tuple[str, ...]:
    """
    Target names that are no linear of the model.

    Args:
        model: Architecture.
        targets: Names as the framework takes them.
        experts_are_linears: As for `adapted_linears`.

    Returns:
        Those that alone would adapt nothing.
    """
    return tuple(t for t in targets if not adapted_linears(model, (t,), experts_are_linears))


@per_model()
def names_of_linears(model: Model) -> tuple[str, ...]:
    """Names that a target may have in this model, in the order of a layer; embedding and head last."""
    inside = [t.name for g in model.layers for t in g.layer.tensors if t.linear and t.in_features > 1]
    outside = [t.name for t in model.outside if t.role == "embed" or (t.linear and t.component == "lm_head")]
    return tuple(dict.fromkeys(name.removesuffix(".weight").rpartition(".")[2] for name in (*inside, *outside)))


def _matches_outside(tensor: Tensor, targets: tuple[str, ...]) -> bool:
    return tensor.component == "lm_head" and any(t in ("head", "lm_head", "output", "lora_head") for t in targets)


def _in_group(group: LayerGroup, targets: tuple[str, ...], experts_are_linears: bool) -> list[Adapted]:
    linears = [t for t in group.layer.tensors if t.linear and t.in_features > 1]
    chosen: dict[str, Adapted] = {}
    for target in targets:
        for tensor in _named(linears, target, targets, experts_are_linears):
            chosen.setdefault(tensor.name, _whole(tensor, group.count))
        for adapted in _parts(linears, target, group):
            chosen.setdefault(adapted.role, adapted)
    return list(chosen.values())


def _whole(tensor: Tensor, layers: int) -> Adapted:
    return Adapted(tensor.role, tensor.in_features, tensor.out_features, layers, tensor.experts, tensor.component)


def _named(linears: list[Tensor], target: str, targets: tuple[str, ...], experts: bool) -> list[Tensor]:
    if target in (ALL_LINEAR, "all", "ALL", "all_linear"):
        return [t for t in linears if experts or t.component not in ("routed_experts", "router")]
    own = [t for t in linears if module_of(t) == target or module_of(t).endswith("." + target)]
    if own:
        return own
    roles = _roles(target, targets)
    return [t for t in linears if t.role in roles]


def _roles(target: str, targets: tuple[str, ...]) -> frozenset[str]:
    if target in _QWEN_FEED:
        return (_QWEN_FEED if "c_proj" in targets else _LLAMA_FEED)[target]
    return SPELLINGS.get(target, frozenset())


def _parts(linears: list[Tensor], target: str, group: LayerGroup) -> list[Adapted]:
    """Queries, keys or values of a fused matrix, adapted each for itself."""
    roles = SPELLINGS.get(target, frozenset())
    attention = group.layer.attention
    fused = next((t for t in linears if t.role == "qkv"), None)
    if attention is None or fused is None or len(roles & {"q", "k", "v"}) != 1:
        return []
    role = next(iter(roles & {"q", "k", "v"}))
    heads = attention.num_attention_heads if role == "q" else attention.num_key_value_heads
    return [Adapted(role, fused.in_features, heads * attention.head_dim, group.count)]


def module_of(tensor: Tensor) -> str:
    """Path of the module that holds a tensor, below the layer."""
    return tensor.name.removesuffix(".weight")


def default_targets(model: Model) -> tuple[str, ...]:
    """PEFT's own choice for a model: queries and values where it has no other."""
    return model.code.lora_targets


def scaled_targets(model: Model) -> tuple[str, ...]:
    """
    Linears that IA3 scales when none are given: as PEFT has it for the model type, else keys, values, the feed-forward's last.

    Source:
        huggingface/peft@v0.21.2 src/peft/utils/constants.py TRANSFORMERS_MODELS_TO_IA3_TARGET_MODULES_MAPPING
    """
    if model.code.ia3_targets:
        return model.code.ia3_targets
    fused = any(t.role == "qkv" for g in model.layers for t in g.layer.tensors)
    return ("query_key_value", "down_proj") if fused else ("k_proj", "v_proj", "down_proj")
