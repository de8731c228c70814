"""Items of a run of generate(), by hand for a model of a few numbers."""

from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from tonnage.estimate.serving import transformers_items as items
from tonnage.laws import allocator, fused_awq, generate
from tonnage.spec.model import Attention, Layer, LayerGroup, Mlp, Model
from tonnage.spec.report import Amount, exactly, within
from tonnage.units import MiB

ATTENTION = Attention(kind="full", num_attention_heads=6, num_key_value_heads=2, head_dim=8, v_head_dim=8)
SLIDING = replace(ATTENTION, kind="sliding", window=50)
MLP = Mlp(intermediate_size=90, gated=True)


def model(*layers, **more):
    groups, at = [], 0
    for layer, count in layers or ((Layer(attention=ATTENTION, mlp=MLP), 3),):
        groups.append(LayerGroup(layer, tuple(range(at, at + count))))
        at += count
    return Model(**{"parameters_total": 1, "hidden_size": 32, "vocab_size": 1000, "layers": tuple(groups)} | more)


MODEL = model()


def chosen(**more):
    release = {"sliding_cache": "window", "last_position_logits": False, "fused_awq_models": ("fused",)}
    release |= more.pop("release", {})
    usual = {
        "batch_size": 2, "prompt_tokens": 100, "length": 130, "cache": "dynamic", "eager": False, "workspace_bytes": 0,
        "execution": SimpleNamespace(element_bytes=2, repeats_kv_heads=True),
    }  # fmt: skip
    return SimpleNamespace(release=SimpleNamespace(**release), **usual | more)


def part(**more):
    usual = {
        "exact": 40_000_000, "counted": 41_000_000, "reserved": 44_000_000, "layers": (0, 1, 2), "largest_matrix": 5000,
        "tied_head": 0, "gaps": (), "extra_head": 0, "head": True,
    }  # fmt: skip
    return SimpleNamespace(**usual | more)


def form(family="plain", *, block=1):
    return SimpleNamespace(id=family, family=family, block_elements=block)


def held(**more):
    return SimpleNamespace(
        **{"final": 0, "prompt": 0, "state": 0, "tensors": 0, "last_keys": 0, "last_values": 0} | more
    )


# ---- resident ----


def test_the_scatter_is_half_a_percent_and_no_less_than_a_little():
    assert [400, 20 * MiB, 50_000_000] == [items._scatter(n) for n in (20_000, 2_000_000_000, 10_000_000_000)]


@pytest.mark.parametrize(("movable", "moved"), [(False, 0), (True, 40_000_000 // 3)])
def test_weights_may_be_smaller_than_exact_and_larger_than_counted(movable, moved):
    found = items._weights(part(), MODEL, form(), known=False, movable=movable)
    scatter = 800_000 + moved

    assert Amount(40_000_000 - scatter, 41_000_000, 41_000_000 + scatter) == found.bytes
    assert ("derived", "user") == (found.basis, items._weights(part(), MODEL, form(), known=True, movable=False).basis)


def test_a_part_without_layers_may_move_whole_but_not_below_nothing():
    found = items._weights(part(layers=()), MODEL, form(), known=False, movable=True)

    assert (0, 41_000_000 + 800_000 + 40_000_000) == (found.bytes.low, found.bytes.high)


def unchanging(**more):
    usual = {"workspace": 7, "unstated": False, "known": False, "devices": 1}
    at = more.pop("at", part())
    kind = more.pop("form", form())
    return {i.component: i for i in items._unchanging.__wrapped__(at, MODEL, kind, None, **usual | more)}


def test_a_workspace_may_be_absent_or_eight_mebibytes_larger():
    assert Amount(0, 7, 7 + 8 * MiB) == unchanging()["workspace"].bytes


@pytest.mark.parametrize(
    ("kind", "matrix", "found"),
    [(form("gptq", block=8), 5000, True), (form("gptq"), 5000, False), (form("awq", block=8), 5000, False),
     (form("gptq", block=8), 0, False)],
)  # fmt: skip
def test_only_a_kernel_for_packed_gptq_has_a_workspace_of_its_own(kind, matrix, found):
    assert found is ("quantization_workspace" in unchanging(form=kind, at=part(largest_matrix=matrix)))


def test_segments_that_weights_do_not_fill_are_reserved():
    assert Amount(0, 3_000_000, 3_000_000 + 40 * MiB) == unchanging()["fragmentation"].bytes
    assert 0 == unchanging(at=part(reserved=1))["fragmentation"].bytes.expected
    tied = part(tied_head=999)
    assert 40 * MiB + 999 == unchanging(at=tied, unstated=True)["fragmentation"].bytes.high - 3_000_000
    assert 40 * MiB == unchanging(at=tied)["fragmentation"].bytes.high - 3_000_000


@pytest.mark.parametrize(("devices", "unstated", "moves"), [(1, True, False), (2, True, True), (2, False, False)])
def test_layers_move_between_devices_of_an_unstated_release(devices, unstated, moves):
    found = unchanging(devices=devices, unstated=unstated)["weights"].bytes.high - 41_000_000

    assert moves is (found > 800_000)


def test_fused_attention_may_hold_a_cache_of_its_own():
    each = fused_awq.fused_attention_cache(num_key_value_heads=2, head_dim=8, tokens=131, batch_size=2)

    assert Amount(0, 0, 3 * each - 100) == items._fused(MODEL, chosen(), part(), held(final=100)).bytes
    assert Amount(0, 0, 2 * each) == items._fused(MODEL, chosen(), part(layers=(0, 1)), held()).bytes
    assert 0 == items._fused(MODEL, chosen(), part(), held(final=10**9)).bytes.high
    assert 0 == items._fused(model((Layer(mlp=MLP), 2)), chosen(), part(layers=(0, 1)), held()).bytes.high


def test_models_that_are_known_to_be_fused_hold_rotary_tables():
    tables = 3 * fused_awq.fused_rotary_table(head_dim=8, prompt_tokens=100)
    known = model(model_type="fused")

    assert Amount(0, tables, tables) == items._fused(known, chosen(), part(), held(final=10**9)).bytes
    each = fused_awq.fused_attention_cache(num_key_value_heads=2, head_dim=8, tokens=131, batch_size=2)
    assert Amount(0, tables, max(tables, 3 * each)) == items._fused(known, chosen(), part(), held()).bytes


# ---- caches ----


def cached(size, cache, at=None, *, grown=False, **more):
    return items.cache_items(size, cache, chosen(**more), at or part(), grown=grown)


def test_a_cache_is_named_by_its_tokens_then_and_at_the_end():
    assert "dynamic cache, batch 2, 100 tokens" == cached(1000, held())[0].detail
    assert "dynamic cache, batch 2, 130 tokens" == cached(1000, held(), grown=True)[0].detail
    assert within(1000, 0.005) == cached(1000, held())[0].bytes
    assert () == cached(0, held())


def test_states_may_be_half_as_large():
    (found,) = cached(0, held(state=1000))

    assert ("recurrent_state", within(1000, 0.5, 0.1)) == (found.component, found.bytes)


def test_remainders_of_blocks_are_known_for_a_cache_that_stands():
    gaps = (9 * MiB, 5 * MiB)
    kept = allocator.unsplit_remainders(free=gaps, request=2 * MiB, count=4)
    standing = cached(8 * MiB, held(tensors=4), part(gaps=gaps))[1:]
    growing = cached(8 * MiB, held(tensors=4), part(gaps=gaps), grown=True)[1:]

    assert [Amount(0, kept, max(kept, 4 * MiB // 3))] * bool(kept) == [i.bytes for i in standing]
    assert [Amount(0, 0, 4 * MiB // 3)] == [i.bytes for i in growing]
    assert () == cached(8 * MiB, held(tensors=4))[1:]
    assert () == cached(8 * MiB, held(), grown=True)[1:]


def test_a_cache_that_stands_has_a_remainder_where_a_gap_is_a_little_larger():
    gaps = (2 * MiB + 200_000,)
    kept = allocator.unsplit_remainders(free=gaps, request=2 * MiB, count=1)

    assert kept > 0
    assert Amount(0, kept, max(kept, MiB // 3)) == cached(2 * MiB, held(tensors=1), part(gaps=gaps))[1].bytes


# ---- the prompt ----


@pytest.mark.parametrize(
    ("layers", "more", "expected"),
    [
        ((SLIDING,), {}, (1, 100)),
        ((SLIDING,), {"prompt_tokens": 50}, None),
        ((SLIDING,), {"prompt_tokens": 51}, (1, 51)),
        ((ATTENTION,), {}, None),
        ((SLIDING,), {"eager": True}, None),
        ((SLIDING,), {"cache": "none"}, None),
        ((SLIDING,), {"cache": "static"}, (2, 130)),
        ((SLIDING,), {"release": {"sliding_cache": "whole"}}, None),
        ((replace(SLIDING, window=90), SLIDING), {"prompt_tokens": 80}, (1, 80)),
    ],
)
def test_a_prompt_longer_than_a_window_has_a_mask(layers, more, expected):
    found = items._mask(model(*((Layer(attention=a), 1) for a in layers)), chosen(**more))
    tokens = more.get("prompt_tokens", 100)

    assert found == (
        0
        if expected is None
        else generate.window_mask(batch_size=2, tokens=tokens, keys=expected[1], element_bytes=expected[0])
    )


def test_scores_of_the_eager_path_are_those_of_the_most_heads():
    two = model((Layer(attention=ATTENTION), 1), (Layer(attention=replace(ATTENTION, num_attention_heads=9)), 1))
    stream = 2 * 100 * 3 * 2 * 32

    def scores(per_score):
        return generate.eager_scores(
            num_attention_heads=9, tokens=100, keys=100, batch_size=2, per_score_bytes=per_score
        )

    assert Amount(*(scores(b) + stream for b in (6, 8, 10))) == items._scores(two, chosen()).bytes


def test_logits_of_the_prompt_are_those_of_every_position_or_of_the_last():
    stream = within(200 * 2 * 2 * 32, 0.1)

    def logits(rows, upcast):
        return exactly(generate.prompt_logits(rows=rows, vocab_size=1000, element_bytes=2, upcast=upcast))

    assert (stream, logits(200, True)) == tuple(i.bytes for i in items._output(MODEL, chosen(), part()))
    last = chosen(release={"last_position_logits": True})
    assert (stream, logits(2, False)) == tuple(i.bytes for i in items._output(MODEL, last, part()))


def test_a_part_without_a_head_has_no_logits():
    assert () == items._output(MODEL, chosen(), part(head=False))
    assert () == items._output(model(vocab_size=0), chosen(), part())
    assert () == items._output(model((Layer(role="encoder"), 1), vocab_size=1000), chosen(), part())


@pytest.mark.parametrize(
    ("block", "tokens", "matrix", "found"),
    [
        (1, items._KERNEL_SWITCH, 5000, True),
        (1, items._KERNEL_SWITCH - 1, 5000, False),
        (8, items._KERNEL_SWITCH, 5000, False),
        (1, items._KERNEL_SWITCH, 0, False),
    ],
)
def test_gptq_without_its_kernel_unpacks_a_matrix_for_long_batches(block, tokens, matrix, found):
    workload = SimpleNamespace(weight_format=form("gptq", block=block), model=MODEL)
    answer = items._torch_dequantization(
        workload, chosen(batch_size=1, prompt_tokens=tokens), part(largest_matrix=matrix)
    )
    beside = generate.feed_forward(hidden_size=32, intermediate_size=90, products=1, element_bytes=2)
    size = tokens * beside + generate.torch_dequantization(largest_matrix_elements=5000)

    assert (within(size, 0.05) if found else exactly(0)) == answer.bytes


def test_a_four_bit_product_unpacks_its_matrix_beside_its_rows():
    workload = SimpleNamespace(weight_format=form("bitsandbytes", block=2), model=MODEL)
    rows = 200 * generate.feed_forward(hidden_size=32, intermediate_size=90, products=2, element_bytes=2)
    matrix = generate.dequantized_matrix(largest_matrix_elements=5000, element_bytes=2)

    assert (within(rows, 0.1), within(matrix, 0.1)) == tuple(
        i.bytes for i in items._dequantized(workload, chosen(), part())
    )
    eight = SimpleNamespace(weight_format=form("bitsandbytes"), model=MODEL)
    assert () == items._dequantized(eight, chosen(), part())


@pytest.mark.parametrize(
    ("family", "more", "components"),
    [
        ("plain", {}, ["activations", "logits"]),
        ("plain", {"eager": True, "prompt_tokens": 2000}, ["activations"]),
        ("bitsandbytes", {}, ["activations", "dequantization"]),
    ],
)
def test_the_widest_moment_of_the_prompt_is_shown(monkeypatch, family, more, components):
    monkeypatch.setattr(items, "width", lambda *_: SimpleNamespace(per_token=1, below=0.1, above=0.1, law="norm"))
    workload = SimpleNamespace(weight_format=form(family, block=2), model=MODEL)
    matrix = part(largest_matrix=10_000_000 if family == "bitsandbytes" else 0)

    assert components == [i.component for i in items.prefill(workload, chosen(**more), matrix, None)]


def test_a_layer_wider_than_everything_else_is_the_prompts_moment(monkeypatch):
    monkeypatch.setattr(items, "width", lambda *_: SimpleNamespace(per_token=10**6, below=0.1, above=0.2, law="norm"))
    workload = SimpleNamespace(weight_format=form(), model=MODEL)
    (found,) = items.prefill(workload, chosen(), part(), None)

    assert within(200 * 10**6, 0.1, 0.2) == found.bytes


# ---- the end ----


def test_what_the_last_step_needs():
    keys, values = 700, 300

    def step(key_bytes, repeated=True):
        return within(
            generate.decode_step(key_bytes=key_bytes, value_bytes=values, heads_per_kv_head=3, repeated=repeated), 0.3
        )

    cache = held(last_keys=keys, last_values=values, final=5000)
    assert step(keys) == items.decode(MODEL, chosen(), cache).bytes
    assert step(0) == items.decode(MODEL, chosen(cache="static"), cache).bytes
    twice = within(generate.tuple_cache_step(cache_bytes=5000), 0.05)
    assert twice == items.decode(MODEL, chosen(cache="tuple"), cache).bytes


@pytest.mark.parametrize(
    ("attention", "expected"),
    [(ATTENTION, 3), (replace(ATTENTION, kind="mla"), 1), (None, 1), (replace(ATTENTION, num_key_value_heads=0), 6)],
)
def test_queries_that_share_a_key_head(attention, expected):
    assert expected == items._queries_per_head(model((Layer(attention=attention), 1)))


@pytest.mark.parametrize(
    ("kind", "expected"), [("dynamic", Amount(0, 50, 202)), ("tuple", Amount(0, 50, 151)), ("static", exactly(0))]
)
def test_blocks_that_a_cache_outgrew_stay_behind(kind, expected):
    assert expected == items.outgrown(held(final=301, prompt=200), chosen(cache=kind)).bytes


def test_a_cache_that_shrank_leaves_nothing():
    assert exactly(0) == items.outgrown(held(final=100, prompt=200), chosen()).bytes


def test_of_outgrown_blocks_a_few_percent_cannot_be_given_back():
    blocks = items.outgrown(held(final=10**9), chosen())
    most = 2 * 10**9

    assert (
        Amount(
            0,
            items.unavoidable(transient=most, percent=4),
            items.unavoidable(transient=most, percent=12),
        )
        == items.stuck(blocks).bytes
    )


def test_a_head_before_it_is_tied_may_be_held_while_loading():
    family = next(iter(items._MAKES_HEAD))
    made = SimpleNamespace(weight_format=form(family))

    assert [Amount(0, 9, 9)] == [i.bytes for i in items.loading(made, part(extra_head=9))]
    assert () == items.loading(made, part())
    assert () == items.loading(SimpleNamespace(weight_format=form("none")), part(extra_head=9))


def test_what_generate_leaves_behind_are_logits_of_the_next_token_where_there_is_a_head():
    small, logits = items.left_behind(MODEL, chosen(), part())
    size = generate.next_token_logits(batch_size=2, vocab_size=1000, element_bytes=2)

    assert (exactly(items._SMALL_BLOCKS), exactly(size)) == (small.bytes, logits.bytes)
    assert 1 == len(items.left_behind(MODEL, chosen(), part(head=False)))
