"""Tensors of modules: a linear is its weight and, where there is one, its bias."""

from tonnage.architecture.fields import Fields
from tonnage.architecture.tables import TensorRow
from tonnage.spec.model import Component, Shard, Tensor

_BIAS_SHARD: dict[Shard, Shard] = {"row": "replicated"}


def linear(
    fields: Fields,
    role: str,
    *,
    rows: int,
    columns: int,
    component: Component,
    shard: Shard,
    bias: bool = False,
    experts: int = 1,
    heads: int = 0,
    kv_rows: int = 0,
    label: str | None = None,
) -> list[Tensor]:
    """Weight [rows, columns] of one linear, or of `experts` of them, and its bias [rows]; `label` is its role if other."""
    weight_name, bias_name = _names(fields.name(role))
    weight = Tensor(
        name=weight_name,
        component=component,
        out_features=rows,
        in_features=columns,
        experts=experts,
        shard=shard,
        heads=heads,
        kv_out_features=kv_rows,
        role=label or role,
        linear=True,
    )
    if not bias:
        return [weight]
    offset = Tensor(
        name=bias_name,
        component=component,
        out_features=rows,
        experts=experts,
        shard=_BIAS_SHARD.get(shard, shard),
        heads=heads,
        kv_out_features=kv_rows,
        role=weight.role,
    )
    return [weight, offset]


def norm(
    fields: Fields,
    name: str,
    size: int,
    *,
    component: Component = "norm",
    role: str = "norm",
    bias: bool | None = None,
    copies: int = 1,
) -> list[Tensor]:
    """Weight of a norm and, for a LayerNorm with bias, its bias; nothing for a norm without weights."""
    if fields["norm_kind"] == "none":
        return []
    has_bias = bias if bias is not None else fields["norm_kind"] == "layer" and fields.flag("norm_bias")
    parts = ("weight", "bias") if has_bias else ("weight",)
    return [
        Tensor(name=f"{name}.{part}", component=component, out_features=size, role=role, experts=copies)
        for part in parts
    ]


def from_rows(fields: Fields, rows: tuple[TensorRow, ...]) -> list[Tensor]:
    """Tensors that a table lists itself."""
    return [tensor for row in rows if fields.evaluate(row.when) for tensor in _from_row(fields, row)]


def _from_row(fields: Fields, row: TensorRow) -> list[Tensor]:
    rows, columns, copies = (fields.size(text) for text in (row.rows, row.columns, row.copies))
    if rows < 1 or columns < 1 or copies < 1:
        return []
    weight = Tensor(
        name=_row_name(fields, row.name),
        component=row.component,
        out_features=rows,
        in_features=columns,
        experts=copies,
        shard=row.shard,
        linear=row.linear,
        role=row.role,
        fixed_dtype=row.dtype,
    )
    if not fields.evaluate(row.bias):
        return [weight]
    return [
        weight,
        Tensor(
            name=weight.name.removesuffix("weight") + "bias",
            component=row.component,
            out_features=rows,
            experts=copies,
            shard=_BIAS_SHARD.get(row.shard, row.shard),
            role=row.role,
        ),
    ]


def _row_name(fields: Fields, name: str) -> str:
    module, dot, last = name.rpartition(".")
    return f"{fields.name(module)}.{last}" if dot else fields.name(name)


def _names(module: str) -> tuple[str, str]:
    if module.endswith("!"):
        return module[:-1], f"{module[:-1]}_bias"
    return f"{module}.weight", f"{module}.bias"
