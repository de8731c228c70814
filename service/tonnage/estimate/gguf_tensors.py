"""
A model's tensors as a GGUF file holds them, each with its GGML type.

Names and shapes follow convert_hf_to_gguf.py: norms, biases, routers and small tables are F32, the
up-projection of latent attention is stored as two matrices.
Source: ggml-org/llama.cpp@0c1e57098 convert_hf_to_gguf.py, gguf-py/gguf/tensor_mapping.py
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from tonnage.errors import MissingFact
from tonnage.estimate.file_types import Mix, fitting_type, needs_imatrix, output_fits, tensor_type
from tonnage.spec.facts import WeightFormat
from tonnage.spec.model import Attention, Component, Layer, Model, Tensor

Row = tuple[Tensor, WeightFormat, tuple[int, ...], str]

_TOWERS: frozenset[Component] = frozenset({"vision", "projector", "audio"})
_CATEGORIES = {
    "qkv": "attn_qkv", "q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output",
    "in_proj_qkv": "attn_qkv", "lightning_qkv": "attn_qkv",
    "kda_q": "attn_q", "kda_k": "attn_k", "kda_v": "attn_v",
    "gate": "ffn_gate", "up": "ffn_up", "gate_up": "ffn_up", "down": "ffn_down",
}  # fmt: skip
"""Role of a linear -> what the type choice calls it; the rest is "other"."""
_VALUES = frozenset({"attn_v", "attn_qkv", "attn_kv_b"})


class _Matrix(Struct, frozen=True):
    """A matrix of the file and what the type choice calls it."""

    tensor: Tensor
    category: str
    stacked: bool = False
    """Whether it has a third dimension: experts, or heads of latent attention."""


def gguf_rows(model: Model, file_type: WeightFormat, formats: Mapping[str, WeightFormat]) -> Iterator[Row]:
    """
    Tensors of the model in a GGUF file type.

    Args:
        model: Architecture.
        file_type: Format of kind file-mix.
        formats: GGML tensor types by catalogue id.

    Returns:
        Tensor, its type, the decoder layers that hold one each, and where it stands (layers, first, last).
    """
    mix = _mix_of(model, file_type)
    typed = _Typed(mix, formats)
    for tensor in model.outside:
        if tensor.component not in _TOWERS:
            place = "first" if tensor.component == "embedding" else "last"
            for matrix in _matrices(tensor, None):
                yield matrix.tensor, typed.format_of(matrix, 0), (), place
    yield from _layer_rows(model, typed)


def _layer_rows(model: Model, typed: "_Typed") -> Iterator[Row]:
    held: dict[tuple[int, int, str], tuple[Tensor, WeightFormat, list[int], str]] = {}
    for layer, group_number, matrices, place in _layers_in_order(model):
        for number, matrix in enumerate(matrices):
            chosen = typed.format_of(matrix, layer)
            row = held.setdefault((group_number, number, chosen.id), (matrix.tensor, chosen, [], place))
            row[2].append(layer)
    for tensor, chosen, layers, place in held.values():
        yield tensor, chosen, tuple(layers), place


def _layers_in_order(model: Model) -> list[tuple[int, int, tuple[_Matrix, ...], str]]:
    layers = []
    for number, group in enumerate(model.layers):
        matrices = tuple(m for tensor in group.layer.tensors for m in _matrices(tensor, group.layer))
        place = "layers" if group.layer.role == "decoder" else "encoder"
        layers += [(index, number, matrices, place) for index in group.indices]
    return sorted(layers, key=lambda entry: (entry[3], entry[0]))


class _Typed:
    """Type of one matrix after the other, counting those of a category as llama.cpp does."""

    def __init__(self, mix: Mix, formats: Mapping[str, WeightFormat]) -> None:
        self.mix = mix
        self.formats = formats
        self.before: dict[str, int] = {}

    def format_of(self, matrix: _Matrix, layer: int) -> WeightFormat:
        return self._format(self._type(matrix, layer))

    def _type(self, matrix: _Matrix, layer: int) -> str:
        tensor, category = matrix.tensor, matrix.category
        if category == "f32" or tensor.in_features == 1:
            return "f32"
        counted = "attn_v" if category in _VALUES else category
        before = self.before.get(counted, 0)
        self.before[counted] = before + 1
        stacked = matrix.stacked or tensor.experts > 1
        chosen = tensor_type(self.mix, category, layer, before, stacked=stacked)
        output_like = category == "output" or (category == "token_embd" and self.mix.tied)
        if output_like and chosen not in ("f32", "f16", "bf16") and not output_fits(self.mix, tensor.in_features):
            chosen = "q8_0"
        return fitting_type(chosen, tensor.in_features)

    def _format(self, name: str) -> WeightFormat:
        found = self.formats.get("ggml-" + name)
        if found is None:
            raise MissingFact(f"GGML type ggml-{name} is not in the catalogue's formats")
        return found


def _matrices(tensor: Tensor, layer: Layer | None) -> Iterator[_Matrix]:
    if layer is not None and tensor.linear and tensor.role in _SPLIT:
        yield from _SPLIT[tensor.role](tensor, layer)
    elif tensor.component == "embedding":
        yield _Matrix(tensor, "token_embd" if _is_token_table(tensor) else "f32")
    elif tensor.component == "lm_head":
        yield _Matrix(tensor, "output")
    elif not tensor.linear or tensor.component == "router" or 1 in (tensor.in_features, tensor.out_features):
        yield _Matrix(tensor, "f32")
    else:
        yield _Matrix(tensor, category_of(tensor))


def _is_token_table(tensor: Tensor) -> bool:
    return "position" not in tensor.name and "token_type" not in tensor.name and "wpe" not in tensor.name


def _latent_up_projections(tensor: Tensor, layer: Layer) -> Iterator[_Matrix]:
    """attn_k_b is stored transposed, its rows qk_nope_head_dim wide; attn_v_b as it is."""
    attention = layer.attention
    if attention is None:
        return
    heads, latent = attention.num_attention_heads, tensor.in_features
    keys = tensor.out_features // heads - attention.v_head_dim
    key = replace(tensor, out_features=heads * latent, in_features=keys, name=tensor.name + ".k_b")
    value = replace(tensor, out_features=heads * attention.v_head_dim, name=tensor.name + ".v_b")
    yield _Matrix(key, "other", stacked=True)
    yield _Matrix(value, "other", stacked=True)


def _delta_inputs(tensor: Tensor, layer: Layer) -> Iterator[_Matrix]:
    """q, k and v are one matrix of the file, the output gate z another."""
    gate = layer.recurrent.inner_size if layer.recurrent else 0
    yield _Matrix(replace(tensor, out_features=tensor.out_features - gate), "attn_qkv")
    yield _Matrix(replace(tensor, out_features=gate, name=tensor.name + ".z"), "other")


_SPLIT = {"kv_b": _latent_up_projections, "in_proj_qkvz": _delta_inputs}
"""Roles that a GGUF file stores as two matrices."""


def category_of(tensor: Tensor) -> str:
    """What llama.cpp's type choice calls a linear of a layer."""
    return _CATEGORIES.get(tensor.role.removeprefix("expert_").removeprefix("shared_"), "other")


def _mix_of(model: Model, file_type: WeightFormat) -> Mix:
    layers = sum(group.count for group in model.layers)
    attention = _first_attention(model)
    name = file_type.id.removeprefix("gguf-").replace("-", "_")
    return Mix(
        file_type=name,
        base=(file_type.base_type or "").removeprefix("ggml-"),
        layers=layers,
        value_tensors=_value_tensors(model),
        experts=max((g.layer.moe.num_experts for g in model.layers if g.layer.moe), default=0),
        gqa=_query_heads_per_kv_head(attention),
        falcon=model.model_type in ("falcon", "RefinedWebModel", "RefinedWeb"),
        seventy=_is_seventy(model, attention),
        tied=model.tie_word_embeddings,
        imatrix=needs_imatrix(name),
    )


def _first_attention(model: Model) -> Attention | None:
    """Attention whose heads llama.cpp reads for the mix: the first layer's, which a hybrid file gives none."""
    first = next((g.layer for g in model.layers if 0 in g.indices and g.layer.role == "decoder"), None)
    if (
        first is not None
        and first.attention is None
        and not (first.recurrent and first.recurrent.kind == "gated_delta")
    ):
        return None
    return next((g.layer.attention for g in model.layers if g.layer.attention), None)


def _value_tensors(model: Model) -> int:
    return sum(
        group.count
        for group in model.layers
        for tensor in group.layer.tensors
        for matrix in _matrices(tensor, group.layer)
        if matrix.category in _VALUES
    )


def _query_heads_per_kv_head(attention: Attention | None) -> int:
    """Latent attention counts as one KV head. [heads]"""
    if attention is None:
        return 0
    return attention.num_attention_heads // (1 if attention.kind == "mla" else attention.num_key_value_heads)


def _is_seventy(model: Model, attention: Attention | None) -> bool:
    if model.num_hidden_layers != 80 or attention is None:
        return False
    if model.model_type in ("qwen2", "olmo", "nemotron-nas", "deci"):
        return True
    return model.model_type in ("llama", "mistral") and attention.num_attention_heads != attention.num_key_value_heads
