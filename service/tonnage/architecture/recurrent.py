"""
Layers that keep a state per sequence.

State spaces (Mamba 1 and 2) and short convolutions count as "ssm"; gated delta rule, KDA and lightning
attention, which are linear attention, count as "attention".
"""

from collections.abc import Iterable

from tonnage.architecture.fields import Fields
from tonnage.architecture.tensors import linear
from tonnage.spec.model import Component, Recurrent, Shard, Tensor

Part = tuple[Recurrent, list[Tensor]]


def mamba1(fields: Fields) -> Part:
    """Selective state space with a state per channel."""
    hidden, inner = fields.integer("hidden_size"), fields.integer("ssm_inner_size")
    state, rank = fields.integer("ssm_state_size"), fields.integer("time_step_rank")
    kernel = fields.integer("conv_kernel")
    facts = Recurrent(
        kind="mamba1", conv_channels=inner, conv_kernel=kernel, state_heads=1, state_rows=inner, state_columns=state,
        inner_size=inner,
    )  # fmt: skip
    bias = fields.flag("ssm_bias")
    return facts, [
        *_linear(fields, "in_proj", 2 * inner, hidden, "column", bias=bias),
        *_convolution(fields, inner, kernel),
        *_linear(fields, "x_proj", rank + 2 * state, inner, "row"),
        *_linear(fields, "dt_proj", inner, rank, "column", bias=True),
        _vector(fields, "A_log", inner, state, dtype="fp32"),
        _vector(fields, "D", inner),
        *_linear(fields, "out_proj", hidden, inner, "row", bias=bias),
        *_inner_norms(fields, (("dt", rank), ("b", state), ("c", state))),
    ]


def _inner_norms(fields: Fields, sizes: Iterable[tuple[str, int]]) -> list[Tensor]:
    if not fields.flag("ssm_inner_norms"):
        return []
    return [
        Tensor(
            name=f"{fields.name(f'{part}_norm')}.weight", component=_component(fields), out_features=size, role="norm"
        )
        for part, size in sizes
    ]


def mamba2(fields: Fields) -> Part:
    """State space with scalar decay per head."""
    hidden, inner = fields.integer("hidden_size"), fields.integer("ssm_inner_size")
    heads, state = fields.integer("ssm_heads"), fields.integer("ssm_state_size")
    groups, kernel = fields.integer("ssm_groups"), fields.integer("conv_kernel")
    channels = inner + 2 * groups * state
    facts = Recurrent(
        kind="mamba2", conv_channels=channels, conv_kernel=kernel, state_heads=heads, state_rows=inner // heads,
        state_columns=state, n_groups=groups, inner_size=inner, chunk_size=fields.count("chunk_size"),
    )  # fmt: skip
    bias = fields.flag("ssm_bias")
    norms = [_gated_norm(fields, inner, "column")] if fields.flag("ssm_norm") else []
    return facts, [
        *_linear(fields, "in_proj", inner + channels + heads, hidden, "column", bias=bias),
        *_convolution(fields, channels, kernel),
        _vector(fields, "dt_bias", heads),
        _vector(fields, "A_log", heads, dtype="fp32"),
        _vector(fields, "D", heads),
        *norms,
        *_linear(fields, "out_proj", hidden, inner, "row", bias=fields.flag("ssm_out_bias")),
    ]


def gated_delta(fields: Fields) -> Part:
    """Gated delta rule (Qwen3-Next, Qwen3.5)."""
    facts = _delta_facts(fields, "gated_delta")
    hidden = fields.integer("hidden_size")
    keys = facts.num_key_heads * facts.key_head_dim
    heads, values = facts.num_value_heads, facts.num_value_heads * facts.value_head_dim
    if fields.flag("split_delta_inputs"):
        sizes = {"delta_q": keys, "delta_k": keys, "delta_v": values, "in_proj_z": values}
        sizes |= {"in_proj_b": heads, "in_proj_a": heads}
    elif fields.flag("fused_delta_inputs"):
        sizes = {"in_proj_qkvz": 2 * keys + 2 * values, "in_proj_ba": 2 * heads}
    else:
        sizes = {"in_proj_qkv": 2 * keys + values, "in_proj_z": values, "in_proj_b": heads, "in_proj_a": heads}
    return facts, [
        *(t for role, rows in sizes.items() for t in _linear(fields, role, rows, hidden, "column")),
        *_convolution(fields, facts.conv_channels, facts.conv_kernel),
        _vector(fields, "dt_bias", heads),
        _vector(fields, "A_log", heads, dtype="fp32"),
        _gated_norm(fields, facts.value_head_dim, "replicated"),
        *_linear(fields, "out_proj", hidden, values, "row"),
    ]


def _delta_facts(fields: Fields, kind: str) -> Recurrent:
    key_heads, value_heads = fields.integer("linear_num_key_heads"), fields.integer("linear_num_value_heads")
    key_dim, value_dim = fields.integer("linear_key_head_dim"), fields.integer("linear_value_head_dim")
    return Recurrent(
        kind="kda" if kind == "kda" else "gated_delta",
        conv_channels=2 * key_heads * key_dim + value_heads * value_dim,
        conv_kernel=fields.integer("linear_conv_kernel_dim"),
        state_heads=value_heads,
        state_rows=key_dim,
        state_columns=value_dim,
        num_key_heads=key_heads,
        key_head_dim=key_dim,
        num_value_heads=value_heads,
        value_head_dim=value_dim,
        inner_size=value_heads * value_dim,
        chunk_size=fields.count("chunk_size") or 64,
    )


def kda(fields: Fields) -> Part:
    """Kimi delta attention: a decay per channel, from two low-rank projections."""
    facts = _delta_facts(fields, "kda")
    hidden, heads, head_dim = fields.integer("hidden_size"), facts.num_key_heads, facts.key_head_dim
    width = heads * head_dim
    out: list[Tensor] = []
    for role in ("q", "k", "v"):
        out += _linear(fields, f"kda_{role}", width, hidden, "column")
        out += _convolution(fields, width, facts.conv_kernel, name=f"{role}_conv")
    for role in ("f", "g"):
        out += _linear(fields, f"{role}_a", head_dim, hidden, "replicated")
        out += _linear(fields, f"{role}_b", width, head_dim, "column", bias=fields.flag(f"kda_{role}_bias"))
    return facts, [
        *out,
        *_linear(fields, "beta", heads, hidden, "column"),
        _vector(fields, "dt_bias", width, dtype="fp32"),
        _vector(fields, "A_log", heads, dtype="fp32"),
        _gated_norm(fields, head_dim, "replicated"),
        *_linear(fields, "out_proj", hidden, width, "row"),
    ]


def lightning(fields: Fields) -> Part:
    """Lightning attention (MiniMax): linear attention with a fixed decay per head."""
    hidden, heads, head_dim = (fields.integer(n) for n in ("hidden_size", "num_attention_heads", "head_dim"))
    width = heads * head_dim
    facts = Recurrent(
        kind="lightning", conv_channels=0, conv_kernel=0, state_heads=heads, state_rows=head_dim,
        state_columns=head_dim, num_key_heads=heads, key_head_dim=head_dim, num_value_heads=heads,
        value_head_dim=head_dim, inner_size=width, chunk_size=fields.count("chunk_size"),
    )  # fmt: skip
    return facts, [
        *_linear(fields, "lightning_qkv", 3 * width, hidden, "column"),
        *_linear(fields, "out_proj", hidden, width, "row"),
        *_linear(fields, "output_gate", width, hidden, "column"),
        _gated_norm(fields, width, "column"),
    ]


def short_conv(fields: Fields) -> Part:
    """Gated short convolution (LFM2)."""
    hidden, kernel = fields.integer("hidden_size"), fields.integer("conv_kernel")
    facts = Recurrent(
        kind="short_conv", conv_channels=hidden, conv_kernel=kernel, state_heads=0, state_rows=0, state_columns=0,
        inner_size=hidden,
    )  # fmt: skip
    bias = fields.flag("conv_bias")
    return facts, [
        *_convolution(fields, hidden, kernel),
        *_linear(fields, "in_proj", 3 * hidden, hidden, "column", bias=bias),
        *_linear(fields, "out_proj", hidden, hidden, "row", bias=bias),
    ]


def _component(fields: Fields) -> Component:
    return "attention" if fields.kind in ("gated_delta", "kda", "lightning") else "ssm"


def _gated_norm(fields: Fields, size: int, shard: Shard) -> Tensor:
    component: Component = "norm" if fields.kind in ("kda", "lightning") else _component(fields)
    return Tensor(name=fields.name("gated_norm"), component=component, out_features=size, shard=shard, role="norm")


def _linear(fields: Fields, role: str, rows: int, columns: int, shard: Shard, *, bias: bool = False) -> list[Tensor]:
    return linear(fields, role, rows=rows, columns=columns, component=_component(fields), shard=shard, bias=bias)


def _convolution(fields: Fields, channels: int, kernel: int, name: str = "conv") -> list[Tensor]:
    module = fields.name(name)
    weight = Tensor(
        name=f"{module}.weight",
        component=_component(fields),
        out_features=channels,
        in_features=kernel,
        shard="column",
        role="conv",
    )
    if not fields.flag("conv_bias"):
        return [weight]
    return [
        weight,
        Tensor(name=f"{module}.bias", component=_component(fields), out_features=channels, shard="column", role="conv"),
    ]


def _vector(fields: Fields, role: str, size: int, columns: int = 1, *, dtype: str | None = None) -> Tensor:
    return Tensor(
        name=fields.name(role),
        component=_component(fields),
        out_features=size,
        in_features=columns,
        fixed_dtype=dtype,
        shard="column",
        role=role,
    )
