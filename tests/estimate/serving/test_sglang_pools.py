"""SGLang's pools: what the fraction leaves, and how states, tokens and requests share it."""

from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from stock import BF16

from tonnage.estimate.serving import sglang_cache as pools
from tonnage.estimate.serving.demand import Demand
from tonnage.laws import static_fraction as laws
from tonnage.spec.model import Attention, Layer, LayerGroup, Model
from tonnage.spec.report import Amount, CapacityTokens, exactly

ATTENTION = Attention(kind="full", num_attention_heads=4, num_key_value_heads=2, head_dim=8, v_head_dim=8)
TOKEN = 2 * 2 * 8 * 2
"""Of one layer. [bytes]"""


def chosen(**more):
    release = {
        "recurrent_slots": None, "recurrent_ratio": 0.9, "requests_per_context": 512, "least_running_requests": 48,
        "most_running_requests": 4096, "recurrent_slots_per_request": 3, "draft_cache_inside": True, "sliding_ratio": 0.8,
        "sliding_models": ("mixed",), "whole_on_blackwell": ("mixed",), "latent_window_ratio": 0.1,
        "recurrent_slots_without_prefixes": 0,
    } | more.pop("release", {})  # fmt: skip
    usual = {"fraction": 0.75, "max_running_requests": None, "draft_tokens": 0, "page_size": 1, "context": 1000}
    usual |= {"keeps_prefixes": True, "attention_groups": 1, "attention_ranks": 1}
    return SimpleNamespace(release=SimpleNamespace(**release), **usual | more)


# ---- what the fraction leaves ----


def test_the_fraction_leaves_what_was_free_less_weights_and_its_rest():
    found = pools.memory(chosen(), exactly(1000), exactly(100), exactly(300), 50)

    assert exactly(900 - 350 - 225) == found


def test_without_a_card_nothing_is_left():
    assert exactly(0) == pools.memory(chosen(), None, exactly(100), exactly(300), 50)


@pytest.mark.parametrize(
    ("total", "before", "weights", "below", "above"),
    [
        (Amount(900, 1000, 1000), exactly(100), exactly(300), 75, 0),
        (Amount(1000, 1000, 1050), exactly(100), exactly(300), 0, 37),
        (exactly(1000), Amount(50, 100, 100), exactly(300), 0, 37),
        (exactly(1000), Amount(100, 100, 200), exactly(300), 75, 0),
        (exactly(1000), exactly(100), Amount(290, 300, 300), 0, 10),
        (exactly(1000), exactly(100), Amount(300, 300, 307), 7, 0),
        (Amount(900, 1000, 1050), Amount(60, 100, 175), Amount(276, 300, 300), 93, 53),
    ],
)
def test_what_is_uncertain_before_is_uncertain_after(total, before, weights, below, above):
    found = pools.memory(chosen(), total, before, weights, 0)

    assert (below, above) == (found.expected - found.low, found.high - found.expected)


# ---- states and tokens ----


def test_without_states_all_is_tokens_in_whole_pages():
    assert 0 == pools._slots(chosen(), 1000, 0)
    assert 333 == pools._tokens(chosen(), 1000, token=3, state=0)
    assert 320 == pools._tokens(chosen(page_size=16), 1000, token=3, state=0)


def test_states_take_their_share_and_tokens_the_rest():
    slots = laws.state_slots(pool=10_000, state_bytes=100, ratio=0.9)

    assert slots == pools._slots(chosen(), 10_000, 100)
    assert (10_000 - slots * 100) // 3 == pools._tokens(chosen(), 10_000, token=3, state=100)


def test_an_old_release_has_a_state_for_every_request_or_a_fixed_number():
    old = {"release": {"recurrent_slots": 7}}

    assert 7 == pools._slots(chosen(**old), 10_000, 100)
    assert 5 == pools._slots(chosen(max_running_requests=5, **old), 10_000, 100)


def test_without_kept_prefixes_every_request_that_may_run_has_one_state():
    share = laws.state_slots(pool=10_000, state_bytes=100, ratio=0.9)
    of_512 = {"release": {"recurrent_slots_without_prefixes": 512}}

    assert 5 == pools._slots(chosen(keeps_prefixes=False, max_running_requests=5), 10_000, 100)
    assert share == pools._slots(chosen(keeps_prefixes=False), 10_000, 100)
    assert 512 == pools._slots(chosen(keeps_prefixes=False, **of_512), 10_000, 100)
    assert 64 == pools._slots(chosen(keeps_prefixes=False, attention_groups=8, **of_512), 10_000, 100)
    assert share == pools._slots(chosen(max_running_requests=5, **of_512), 10_000, 100)


def test_without_kept_prefixes_a_request_needs_one_state_only():
    assert 12 == pools.for_context(found(slots=12, state_bytes=1), chosen(keeps_prefixes=False)).requests
    assert 4 == pools.for_context(found(slots=12, state_bytes=1), chosen()).requests


def test_a_draft_keeps_states_between_its_tokens():
    drafting = chosen(draft_tokens=4, max_running_requests=5)
    slots = laws.state_slots(pool=8_000, state_bytes=100, ratio=0.9)

    assert 100 * 5 * 4 == pools._draft_states(drafting, 100)
    assert 0 == pools._draft_states(chosen(draft_tokens=4), 100)
    assert slots == pools._slots(drafting, 10_000, 100)
    assert (8_000 - slots * 100) // 3 == pools._tokens(drafting, 10_000, token=3, state=100)


def test_nothing_left_is_nothing():
    drafting = chosen(draft_tokens=4, max_running_requests=5)

    assert (0, 0) == (pools._slots(drafting, 10, 100), pools._tokens(drafting, 10, token=3, state=100))
    assert (0, 5, 9) == pools._bounds(Amount(-3, 5, 9))
    assert (0, 0, 1) == pools._bounds(Amount(-3, -2, 1))


def found(**more):
    usual = {
        "memory": exactly(10_000), "tokens": CapacityTokens(1, 4000, 9000), "slots": 0, "requests": 0, "token_bytes": 3,
        "state_bytes": 0,
    }  # fmt: skip
    return pools.Pools(**usual | more)


@pytest.mark.parametrize(
    ("tokens", "slots", "stated", "expected"),
    [
        (4000, 0, None, 4000 * 512 // 1000),
        (10, 0, None, 48),
        (100_000, 0, None, 4096),
        (4000, 30, None, 10),
        (4000, 0, 7, 7),
        (4000, 30, 7, 7),
        (4000, 12, 7, 4),
    ],
)
def test_requests_are_those_stated_or_as_many_as_tokens_and_states_allow(tokens, slots, stated, expected):
    have = found(tokens=CapacityTokens(0, tokens, tokens), slots=slots, state_bytes=100 if slots else 0)

    assert expected == pools.for_context(have, chosen(max_running_requests=stated)).requests


# ---- a token ----


def model(*layers, kind="plain", **more):
    groups, at = [], 0
    for attention, count in layers:
        groups.append(LayerGroup(Layer(attention=attention), tuple(range(at, at + count))))
        at += count
    return Model(parameters_total=1, model_type=kind, layers=tuple(groups), **more)


def token(made, *, blackwell=False, speculative=False, ranks=1):
    release = chosen().release
    return pools._token.__wrapped__(
        made, (BF16, BF16), release, None, speculative=speculative, ranks=ranks, blackwell=blackwell
    )


SLIDING = replace(ATTENTION, kind="sliding", window=128)


def test_a_token_costs_its_rows_in_every_layer():
    assert 3 * TOKEN == token(model((ATTENTION, 3)))
    assert 3 * TOKEN // 2 == token(model((ATTENTION, 3)), ranks=2)


def test_a_layer_that_reads_an_earlier_cache_gets_a_pool_all_the_same():
    assert 3 * TOKEN == token(model((ATTENTION, 2), (replace(ATTENTION, kv_shared=True), 1)))


@pytest.mark.parametrize(
    ("kind", "blackwell", "expected"), [("mixed", False, 2 + 0.8 * 3), ("plain", False, 5), ("mixed", True, 5)]
)
def test_windows_of_some_models_have_a_pool_of_their_own(kind, blackwell, expected):
    made = model((ATTENTION, 2), (SLIDING, 3), kind=kind)

    assert expected * TOKEN == token(made, blackwell=blackwell)


def test_chunks_are_windows_and_a_model_of_windows_alone_has_one_pool():
    chunked = replace(SLIDING, kind="chunked")

    assert (1 + 0.8) * TOKEN == token(model((ATTENTION, 1), (chunked, 1), kind="mixed"))
    assert 3.0 * TOKEN == token(model((SLIDING, 3), kind="mixed"))


LATENT = Attention(
    kind="mla", num_attention_heads=4, num_key_value_heads=4, head_dim=8, v_head_dim=8, window=128, kv_lora_rank=40,
    qk_rope_head_dim=10, compress_ratio=4, index_head_dim=6,
)  # fmt: skip


def test_compressed_latents_are_counted_by_kind():
    made = model((LATENT, 2), (replace(LATENT, compress_ratio=32, index_head_dim=None), 3),
                 (replace(LATENT, compress_ratio=1), 1), mtp_layers=1)  # fmt: skip
    expected = laws.compressed_token(
        latent_bytes=40 + 20 + 8,
        state_width=50,
        window=128,
        ratio=0.1,
        windowed_layers=7,
        compressions=((4, 2, 6), (32, 3, 0)),
        speculative=True,
    )

    assert expected == token(made, speculative=True)


def test_a_latent_without_a_window_is_a_plain_row():
    assert pools._compressed(LATENT)
    assert not pools._compressed(replace(LATENT, window=None))
    assert not pools._compressed(SLIDING)


# ---- traffic ----


def demand(**more):
    return SimpleNamespace(**{"requests": 5, "tokens": 100, "shared_tokens": 20} | more)


def test_traffic_shares_its_prefix_and_has_a_state_each():
    assert "shared_tokens" in Demand.__struct_fields__
    assert (20 + 5 * 80) * 3 + 5 * 7 == pools.demand_bytes(found(state_bytes=7), demand())


@pytest.mark.parametrize(("context", "expected"), [(101, 1260), (100, 1000), (99, 1000)])
def test_requests_of_the_longest_length_need_no_more_than_the_pool(context, expected):
    small = found(memory=exactly(1000))

    assert expected == pools.demand_of_pool(small, demand(), chosen(context=context))


def test_a_pool_below_nothing_holds_nothing():
    assert 0 == pools.demand_of_pool(found(memory=exactly(-5)), demand(), chosen(context=100))


def test_the_cache_is_reported_as_the_log_does():
    report = pools.kv_cache(found(slots=9, memory=Amount(-5, 10, 20)), chosen(page_size=16), True)

    assert (Amount(0, 10, 20), 4.0, 16, 4000) == (
        report.pool,
        report.max_concurrency,
        report.block_size,
        report.largest_max_model_len,
    )
    assert "9 recurrent states beside the keys and values" == report.detail
    assert "" == pools.kv_cache(found(), chosen(), True).detail
    assert pools.kv_cache(found(), chosen(), False).pool is None
