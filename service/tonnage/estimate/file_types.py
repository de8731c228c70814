"""
Which GGML type llama.cpp gives each tensor of a GGUF file type.

Source of every rule here: ggml-org/llama.cpp@0c1e57098 src/llama-quant.cpp llama_tensor_get_type_impl,
tensor_type_fallback, tensor_allows_quantization.
"""

from msgspec import Struct

_LOW = frozenset({"iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq2_m"})
_NEED_IMATRIX = _LOW | {"iq3_xxs", "q2_k_s"}
_WIDENED_OUTPUT = frozenset({"iq3_xs", "iq3_xxs", "iq3_s", "iq3_m", "iq4_nl", "iq4_xs"})
_PLAIN = frozenset({"f32", "f16", "bf16"})

_FALLBACK = {
    "iq1_s": "iq4_nl", "iq1_m": "iq4_nl", "iq2_xxs": "iq4_nl", "iq2_xs": "iq4_nl", "iq2_s": "iq4_nl",
    "iq3_xxs": "iq4_nl", "iq3_s": "iq4_nl", "iq4_xs": "iq4_nl", "q2_k": "q4_0", "q3_k": "q4_0", "tq1_0": "q4_0",
    "tq2_0": "q4_0", "q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0",
}  # fmt: skip


class Mix(Struct, frozen=True, kw_only=True):
    """What the choice depends on beside the tensor itself."""

    file_type: str
    """As llama-quantize spells it, lower case: q4_k_m."""
    base: str
    """GGML type the matrices start from."""
    layers: int
    """Layers of the file, MTP layers counted. [layers]"""
    value_tensors: int
    """attn_v, attn_qkv and attn_kv_b tensors of the file. [unitless]"""
    experts: int
    gqa: int
    """Query heads per KV head of the first layer, 0 without attention. [heads]"""
    falcon: bool = False
    seventy: bool = False
    """llama.cpp's type "70B": 80 layers of llama (grouped heads), qwen2, deci or olmo."""
    tied: bool = False
    imatrix: bool = False


def needs_imatrix(file_type: str) -> bool:
    """Whether the file type cannot be made without an importance matrix."""
    return file_type in _NEED_IMATRIX


def use_more_bits(*, layer: int, layers: int) -> bool:
    """Whether a layer's sensitive matrices are raised: the first and last eighth, and every third between."""
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2


def tensor_type(mix: Mix, category: str, layer: int, before: int, *, stacked: bool) -> str:
    """
    GGML type before the shape is looked at.

    With experts llama.cpp goes by the layer number, without by how many tensors of the category came before, which is
    not the same where only some layers have them; below 3 bits it always counts.

    Args:
        mix: File type and model.
        category: output, token_embd, attn_v, attn_qkv, attn_kv_b, attn_k, attn_q, attn_output,
            ffn_up, ffn_gate, ffn_down or other.
        layer: Layer number; 0 outside of layers.
        before: Tensors of the category that come before. [unitless]
        stacked: Whether the tensor has a third dimension (experts, heads of latent attention).

    Returns:
        GGML type name such as "q4_k".
    """
    if mix.base in _PLAIN:
        return mix.base
    if category == "output" or (category == "token_embd" and mix.tied):
        return _output(mix)
    if mix.file_type == "mxfp4":
        return "mxfp4" if stacked else "q8_0"
    if category == "token_embd":
        return _embedding(mix)
    low, counts = mix.file_type in _LOW, category in _VALUES or mix.file_type in _LOW or mix.experts < 2
    chooser = (_LOW_CHOICES if low else _CHOICES).get(category)
    return chooser(mix, before if counts else layer) if chooser else mix.base


def output_fits(mix: Mix, columns: int) -> bool:
    """Whether output rows divide into blocks of the file type's base (else Q8_0)."""
    return columns % block_elements(mix.base) == 0


def block_elements(ggml_type: str) -> int:
    """Elements of a block. [elements]"""
    if ggml_type in _PLAIN:
        return 1
    return 256 if ggml_type in _FALLBACK else 32


def fitting_type(ggml_type: str, columns: int) -> str:
    """Type a matrix really takes: one with smaller blocks when its rows do not divide."""
    if columns % block_elements(ggml_type) == 0:
        return ggml_type
    smaller = _FALLBACK.get(ggml_type, ggml_type)
    return smaller if columns % block_elements(smaller) == 0 else "f16"


def _output(mix: Mix) -> str:
    if mix.file_type == "mxfp4" or mix.falcon:
        return "q8_0"
    if mix.file_type in _LOW or mix.file_type == "iq3_xxs":
        return "q5_k"
    return "q8_0" if mix.base == "q8_0" else "q6_k"


def _embedding(mix: Mix) -> str:
    if mix.file_type in ("iq2_xxs", "iq2_xs", "iq1_s", "iq1_m"):
        return "q2_k"
    if mix.file_type in ("iq2_s", "iq2_m", "iq3_xxs"):
        return "iq3_s"
    return "q4_k" if mix.file_type in ("tq1_0", "tq2_0") else mix.base


def _low_value(mix: Mix, _: int) -> str:
    if mix.gqa >= 4 or mix.experts >= 4:
        return "q4_k"
    return "iq3_s" if mix.file_type in ("iq2_s", "iq2_m") else "q2_k"


def _value(mix: Mix, index: int) -> str:
    chosen = _value_of_file_type(mix, index)
    if mix.seventy and chosen in ("q3_k", "q4_k"):
        chosen = "q5_k"
    return "q8_0" if mix.experts == 8 else chosen


def _value_of_file_type(mix: Mix, index: int) -> str:
    file_type, grouped = mix.file_type, mix.gqa >= 4
    if file_type in ("q4_k_m", "q5_k_m"):
        return "q6_k" if use_more_bits(layer=index, layers=mix.value_tensors) else mix.base
    early = {"q4_k_s": (4, "q5_k", mix.base), "q3_k_m": (2, "q5_k", "q4_k")}.get(file_type)
    if early is not None:
        return early[1] if index < early[0] else early[2]
    if file_type == "iq3_xxs":
        return "q4_k" if grouped else "iq3_xxs" if mix.imatrix else "iq3_s"
    always = {"q2_k": "q3_k", "iq3_m": "q4_k", "q3_k_l": "q5_k"}.get(file_type, mix.base)
    if not grouped:
        return always
    return {
        "q2_k": "q4_k", "q2_k_s": "q4_k", "iq3_xs": "q4_k", "iq3_s": "q4_k", "iq4_nl": "q5_k", "iq4_xs": "q5_k",
    }.get(file_type, always)  # fmt: skip


def _key(mix: Mix, _: int) -> str:
    return "q8_0" if mix.experts == 8 else _query(mix, 0)


def _query(mix: Mix, _: int) -> str:
    return {"iq3_xs": "iq3_xxs", "iq3_xxs": "iq2_s"}.get(mix.file_type, mix.base)


def _up_or_gate(mix: Mix, layer: int) -> str:
    middle = mix.layers // 8 <= layer < 7 * mix.layers // 8
    return "iq3_xxs" if mix.file_type == "iq3_xs" and middle else mix.base


def _down(mix: Mix, layer: int) -> str:
    file_type, first_eighth = mix.file_type, layer < mix.layers // 8
    more = use_more_bits(layer=layer, layers=mix.layers)
    if mix.falcon and file_type in _FALCONS_OWN:
        return _down_of_falcon(mix, layer)
    if file_type in ("q4_k_m", "q5_k_m"):
        return "q6_k" if more else mix.base
    if file_type == "q3_k_m":
        return "q5_k" if layer < mix.layers // 16 else "q4_k"
    if file_type == "iq3_m":
        return "q4_k" if first_eighth or (mix.experts == 8 and more) else mix.base
    if file_type == "iq3_xxs" and not mix.imatrix:
        return "q4_k" if first_eighth else "q3_k"
    always = {"q2_k": "q3_k", "q3_k_l": "q5_k"}.get(file_type, mix.base)
    return _early_down(mix).get(file_type, always) if first_eighth else always


def _early_down(mix: Mix) -> dict[str, str]:
    """What the first eighth of the down projections takes."""
    plain = {"q2_k_s": "q4_k", "q4_k_s": "q5_k"}
    if mix.imatrix:
        return plain | {"q4_0": "q4_1", "q5_0": "q5_1"}
    return plain | {"iq4_nl": "q5_k", "iq4_xs": "q5_k"}


_FALCONS_OWN = frozenset({"q3_k_m", "q3_k_l", "q4_k_s", "q4_k_m"})


def _down_of_falcon(mix: Mix, layer: int) -> str:
    more = use_more_bits(layer=layer, layers=mix.layers)
    first = layer < mix.layers // 16
    if mix.file_type == "q4_k_m":
        return "q6_k" if first else "q5_k" if more else "q4_k"
    if mix.file_type == "q3_k_m":
        return "q5_k" if first else "q4_k" if more else "q3_k"
    return "q4_k" if mix.file_type == "q3_k_l" else mix.base


def _attention_output(mix: Mix, _: int) -> str:
    if mix.falcon:
        return "q4_k" if mix.file_type == "q3_k_l" else mix.base
    if mix.experts == 8:
        raised = {"q2_k", "q3_k_s", "q3_k_m", "q4_k_s", "q4_k_m"} | _WIDENED_OUTPUT
        return "q5_k" if mix.file_type in raised else mix.base
    return {
        "q2_k": "q3_k", "iq3_xxs": "iq3_s", "q3_k_m": "q4_k", "q3_k_l": "q5_k", "iq3_m": "q4_k",
    }.get(mix.file_type, mix.base)  # fmt: skip


def _low_key(mix: Mix, _: int) -> str:
    return "q4_k" if mix.experts == 8 else mix.base


def _low_down(mix: Mix, before: int) -> str:
    if before >= mix.layers // 8:
        return mix.base
    return "iq3_s" if mix.file_type in ("iq2_s", "iq2_m") else "q2_k"


def _low_attention_output(mix: Mix, _: int) -> str:
    if mix.experts == 8:
        return "q5_k"
    return {"iq1_s": "iq2_xxs", "iq1_m": "iq2_xxs", "iq2_s": "iq3_s", "iq2_m": "iq3_s"}.get(mix.file_type, mix.base)


_VALUES = ("attn_v", "attn_qkv", "attn_kv_b")
_CHOICES = {
    **dict.fromkeys(_VALUES, _value),
    "attn_k": _key, "attn_q": _query, "attn_output": _attention_output,
    "ffn_up": _up_or_gate, "ffn_gate": _up_or_gate, "ffn_down": _down,
}  # fmt: skip
_LOW_CHOICES = {
    **dict.fromkeys(_VALUES, _low_value),
    "attn_k": _low_key,
    "attn_output": _low_attention_output,
    "ffn_down": _low_down,
}
