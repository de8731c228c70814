"""Each rule of a training job's settings, on either side of its condition."""

from types import SimpleNamespace

import pytest

from tonnage.estimate.training import settings as rules
from tonnage.spec.model import Attention, ClassCode, Layer, LayerGroup, Model


def card(**more):
    usual = dict.fromkeys(
        ("method", "sharding", "weight_dtype", "compute_dtype", "gradient_dtype", "lora", "master_weights",
         "gradient_checkpointing", "packed")
    )  # fmt: skip
    return SimpleNamespace(**usual | more)


def release(**more):
    defaults = {"weight_dtype": None, "compute_dtype": None, "attn_implementation": "sdpa"} | more.pop("defaults", {})
    usual = {
        "code": "transformers", "mixed_precision": "usual", "four_bit_casts": False, "adapter_dtype": "usual",
        "packs_whole": False, "fsdp": "fsdp1",
    }  # fmt: skip
    return SimpleNamespace(defaults=SimpleNamespace(**defaults), **usual | more)


class Reader:
    """Defaults, and what was assumed."""

    why = "default"

    def __init__(self, **defaults):
        self.defaults = SimpleNamespace(**{"sharding": "zero2", "offload_activations": False} | defaults)
        self.assumed = []

    def assume(self, field, value, why):
        assert why
        self.assumed.append(field)
        return value

    def __call__(self, field):
        return getattr(self.defaults, field)


# ---- sharding ----


@pytest.mark.parametrize(
    ("stated", "ranks", "expected"),
    [
        (None, 1, "none"), (None, 2, "zero2"), ("zero1", 1, "zero1"), ("zero2", 1, "zero2"), ("zero3", 1, "zero3"),
        ("fsdp", 1, "none"), ("fsdp", 2, "fsdp"), ("ddp", 1, "none"), ("ddp", 2, "ddp"), ("distributed_optimizer", 1, "none"),
        ("distributed_optimizer", 2, "distributed_optimizer"), ("hsdp", 1, "none"),
    ],
)  # fmt: skip
def test_one_rank_shards_nothing_but_zero_all_the_same(stated, ranks, expected):
    read = Reader()

    assert expected == rules._sharding(card(sharding=stated), read, ranks)
    assert (["sharding"] if stated is None and ranks > 1 else []) == read.assumed


@pytest.mark.parametrize(
    ("sharding", "ranks", "expected"), [("hsdp", 8, 8), ("hsdp", 9, 8), ("hsdp", 4, 4), ("fsdp", 16, 16)]
)
def test_hybrid_sharding_cuts_within_a_host(sharding, ranks, expected):
    assert expected == rules._shards(sharding, Reader(), ranks)


# ---- what the card leaves open ----


@pytest.mark.parametrize(
    ("packed", "stated", "whole", "expected"),
    [
        (False, "varying", False, True),
        (False, "fixed", True, False),
        (True, "varying", False, False),
        (True, "fixed", True, True),
    ],
)
def test_packing_makes_batches_alike_unless_whole_samples_are_packed(packed, stated, whole, expected):
    read = Reader(sequence_lengths=stated)

    assert expected is rules._varies(card(packed=packed), read, release(packs_whole=whole))


@pytest.mark.parametrize(
    ("checkpointing", "default", "expected"), [(None, True, True), (None, False, False), ("full", True, False)]
)
def test_a_framework_may_offload_what_its_own_checkpointing_keeps(checkpointing, default, expected):
    read = Reader(offload_activations=default)

    assert expected is rules._offloads_by_default(card(gradient_checkpointing=checkpointing), read)


def model(*, written=False, **attention):
    usual = {"kind": "full", "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 1, "v_head_dim": 1}
    layers = (LayerGroup(Layer(attention=Attention(**usual | attention)), (0,)), LayerGroup(Layer(), (1,)))
    return Model(parameters_total=1, layers=layers, code=ClassCode(attention_written_out=written))


@pytest.mark.parametrize(
    ("made", "code", "name", "expected"),
    [
        (model(), "transformers", "sdpa", "sdpa"),
        (model(softcap=True), "transformers", "sdpa", "eager"),
        (model(sinks=True), "transformers", "sdpa", "eager"),
        (model(written=True), "transformers", "sdpa", "eager"),
        (model(softcap=True), "torchtune", "sdpa", "sdpa"),
        (model(softcap=True), "transformers", "flash_attention_2", "flash_attention_2"),
    ],
)
def test_classes_that_pytorchs_kernel_cannot_serve_write_attention_out(made, code, name, expected):
    read = Reader(attn_implementation=name)

    assert expected == rules._attention(read, release(code=code, defaults={"attn_implementation": name}), made)


# ---- widths ----


@pytest.mark.parametrize(
    ("name", "expected"),
    [(None, None), ("float32", 4), ("fp32", 4), ("bfloat16", 2), ("bf16", 2), ("float16", 2), ("odd", 2)],
)
def test_the_width_of_a_dtype(name, expected):
    assert expected == rules._width(name)


def workload(kind="plain", block_bytes=4):
    return SimpleNamespace(weight_format=SimpleNamespace(kind=kind, block_bytes=block_bytes))


def test_weights_have_the_stated_width_or_the_files_or_the_frameworks():
    assert 4 == rules._weight_bytes(workload(block_bytes=2), card(weight_dtype="float32"), release())
    assert 4 == rules._weight_bytes(workload(), card(), release())
    assert 2 == rules._weight_bytes(workload("linear"), card(), release())
    fp32 = release(defaults={"weight_dtype": "float32"})
    assert 4 == rules._weight_bytes(workload("linear"), card(), fp32)


def test_compute_has_the_stated_width_or_the_frameworks_or_that_of_the_weights():
    assert 4 == rules._compute_bytes(card(compute_dtype="float32"), release(), 2, True)
    assert 4 == rules._compute_bytes(card(), release(defaults={"compute_dtype": "float32"}), 2, True)
    assert 2 == rules._compute_bytes(card(), release(), 4, True)
    assert 4 == rules._compute_bytes(card(), release(), 4, False)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, False),
        ({"weight": 4}, True),
        ({"weight": 4, "compute": 4}, False),
        ({"weight": 8, "compute": 4}, False),
        ({"release": release(mixed_precision="never"), "weight": 4}, False),
        ({"release": release(mixed_precision="autocast")}, True),
        ({"sharding": "zero2", "weight": 4}, False),
        ({"sharding": "fsdp", "weight": 4}, True),
        ({"sharding": "fsdp", "release": release(code="torchtitan"), "weight": 4}, False),
        ({"sharding": "ddp", "release": release(code="torchtitan"), "weight": 4}, True),
        ({"quantized": True}, False),
        ({"quantized": True, "card": card(compute_dtype="bfloat16")}, True),
        ({"card": card(compute_dtype="bfloat16")}, False),
    ],
)
def test_when_forward_runs_under_autocast(more, expected):
    usual = {"card": card(), "release": release(), "sharding": "none", "weight": 2, "compute": 2, "quantized": False}

    asked = usual | more
    first = [asked.pop(name) for name in ("card", "release", "sharding")]
    assert expected is bool(rules._autocast(*first, **asked))


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"card": card(lora=SimpleNamespace(dtype="float32"))}, 4),
        ({"card": card(lora=SimpleNamespace(dtype=None))}, 2),
        ({}, 2),
        ({"weight": 4}, 4),
        ({"follow": "fp32"}, 4),
        ({"quantized": True}, 4),
        ({"quantized": True, "release": release(four_bit_casts=True)}, 2),
        ({"weight": 4, "release": release(four_bit_casts=True)}, 4),
        ({"release": release(adapter_dtype="fp32")}, 4),
        ({"release": release(adapter_dtype="base"), "quantized": True}, 2),
        ({"sharding": "zero3", "weight": 4}, 2),
        ({"sharding": "fsdp", "weight": 4}, 2),
        ({"sharding": "fsdp", "weight": 4, "release": release(code="torchtune")}, 4),
    ],
)
def test_the_width_of_adapters(more, expected):
    usual = {
        "card": card(),
        "release": release(),
        "sharding": "none",
        "weight": 2,
        "quantized": False,
        "follow": "base",
    }
    asked = usual | more
    libraries = SimpleNamespace(adapters_follow=asked["follow"])

    assert expected == rules._adapter_bytes(
        asked["card"],
        asked["release"],
        libraries,
        asked["sharding"],
        weight=asked["weight"],
        quantized=asked["quantized"],
    )


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (None, set()), ([], set()), (["lm_head"], {"head"}), (["model.lm_head"], {"head"}), (["output"], {"head"}),
        (["embed_out"], {"head"}), (["score"], {"score"}), (["embed_tokens"], {"embed"}), (["transformer.wte"], {"embed"}),
        (["norm"], {"norm"}),
    ],
)  # fmt: skip
def test_modules_saved_in_full_by_what_they_do(names, expected):
    assert expected == rules._saved_modules(card(lora=SimpleNamespace(modules_to_save=names)))
    assert set() == rules._saved_modules(card())


@pytest.mark.parametrize(
    ("dtype", "weight", "base", "sharding", "expected"),
    [
        (None, 2, True, "none", 2),
        (None, 2, False, "none", 4),
        ("float32", 2, True, "none", 4),
        ("bfloat16", 4, True, "none", 4),
        ("bfloat16", 4, True, "distributed_optimizer", 4),
        ("float32", 2, True, "distributed_optimizer", 4),
        ("float32", 2, True, "zero2", 2),
        ("float32", 2, False, "none", 4),
    ],
)
def test_the_width_of_gradients(dtype, weight, base, sharding, expected):
    assert expected == rules._gradient_bytes(card(gradient_dtype=dtype), weight, base, 4, sharding)


@pytest.mark.parametrize(
    ("stated", "sharding", "width", "compute", "expected"),
    [
        (True, "none", 4, 2, False), (True, "none", 2, 2, True), (False, "none", 2, 2, False), (False, "zero1", 2, 2, True),
        (False, "distributed_optimizer", 2, 2, True), (None, "zero3", 2, 2, True), (None, "zero3", 4, 2, False),
    ],
)  # fmt: skip
def test_when_a_master_copy_is_kept(stated, sharding, width, compute, expected):
    assert expected is bool(rules._master(card(master_weights=stated), sharding, width, compute))


# ---- properties of a job ----


def job(**more):
    usual = dict.fromkeys(rules.Settings.__struct_fields__)
    usual |= {
        "micro_batch_size": 3, "sequence_length": 10, "context_parallel_size": 1, "rank": 4, "method": "full",
        "gradient_accumulation_steps": 1, "sharding": "none", "release": release(),
        "libraries": SimpleNamespace(at_least=lambda name, version: (name, version) == ("torch", "2.0")),
    }  # fmt: skip
    return rules.Settings(**usual | more)


def test_tokens_of_a_micro_batch_are_cut_and_rounded_up():
    assert (30, 8, 3 * 14, 30) == (
        job().tokens,
        job(context_parallel_size=4).tokens,
        job(method="prompt-tuning").tokens,
        job(method="prefix-tuning").tokens,
    )
    assert (0, 4) == (job().prefix_tokens, job(method="prefix-tuning").prefix_tokens)


@pytest.mark.parametrize(
    ("steps", "old", "code", "expected"),
    [
        (1, False, "transformers", False),
        (2, False, "transformers", True),
        (1, True, "transformers", True),
        (1, True, "torchtune", False),
    ],
)
def test_when_gradients_are_there_before_backward(steps, old, code, expected):
    libraries = SimpleNamespace(at_least=lambda *_: not old)

    assert (
        expected
        is job(gradient_accumulation_steps=steps, libraries=libraries, release=release(code=code)).gradients_stay
    )


@pytest.mark.parametrize(
    ("steps", "sharding", "more", "expected"),
    [
        (2, "fsdp", {}, True), (1, "fsdp", {}, False), (2, "zero2", {}, False), (2, "fsdp", {"fsdp": "fsdp2"}, False),
        (2, "fsdp", {"code": "torchtune"}, False),
    ],
)  # fmt: skip
def test_when_the_reduction_waits(steps, sharding, more, expected):
    assert (
        expected is job(gradient_accumulation_steps=steps, sharding=sharding, release=release(**more)).defers_reduction
    )
