"""What vLLM holds outside torch: constants chosen by release, card and layout, and how they are put together."""

from types import SimpleNamespace

import pytest

from tonnage.estimate.serving import vllm_runtime as outside
from tonnage.laws import cuda_graphs, device_context, runtime, serving_buffers
from tonnage.spec.report import Amount, exactly, within
from tonnage.units import MiB

MODEL = SimpleNamespace(vocab_size=1000)


def constants(**more):
    usual = {
        "single": 1000, "single_by_capability": {"8.9": 1100}, "single_other": 1200, "unaligned_vocabulary": 50,
        "pipeline": 700, "tensor_pcie": 2000, "tensor_hopper": {"2": 3000, "8": 4000}, "tensor_nvlink": {"4": 2500},
        "spread_single": 100, "spread_tensor": 300,
    }  # fmt: skip
    return SimpleNamespace(**usual | more)


def graph_size(**more):
    usual = {
        "base": 10, "per_size": 20, "per_node": 3, "lora_per_node": 5, "hidden_buffers": 2, "mlp_buffers": 1,
        "expert_buffers": 4, "mixture_of_experts": 600, "bitsandbytes": 900, "v2_factor": 0.5, "spread": 1.25,
        "warm_spread": 1.5, "v2_modules": 20_000, "may_give_back": False,
        "recurrent_tuning": 10_000, "per_reduction": 7, "estimate_factor": 2.0, "v2_estimate_factor": 3.0,
    }  # fmt: skip
    return SimpleNamespace(**usual | more)


GRAPHS = graph_size()


def chosen(**more):
    core = {
        "non_torch": constants(), "context_in_budget": False, "communicator_in_budget": False, "graphs": GRAPHS,
        "graphs_other": None, "graphs_rocm": None,
    } | more.pop("core", {})  # fmt: skip
    release = {
        "sampler": "sort", "consumed_accounting": True, "fusion_workspace": "none", "host_growth": (10, 20, 30),
        "v0": SimpleNamespace(context_in_budget=True, non_torch=constants(single=400)), "cudagraph_specialize_lora": False,
        "cudagraph_mode": "full_and_piecewise", "graph_estimate": "none",
    } | more.pop("release", {})  # fmt: skip
    usual = {
        "major": 9, "minor": 0, "rocm": False, "runner_v2": False, "max_num_seqs": 4, "multiprocessors": 100, "nvswitch": True,
        "unified_memory": False, "legacy": False, "eager": False, "captures": (1, 2, 8), "data_centre": True,
        "max_model_len": 64, "speculative_tokens": 0, "element_bytes": 2,
    }  # fmt: skip
    return SimpleNamespace(core=SimpleNamespace(**core), release=SimpleNamespace(**release), **usual | more)


def single(settings):
    return outside._single(settings, constants())


# ---- constants by card ----


@pytest.mark.parametrize(("major", "minor", "expected"), [(9, 0, 1000), (8, 9, 1100), (8, 0, 1200), (12, 0, 1200)])
def test_one_gpu_by_its_capability(major, minor, expected):
    assert expected == single(chosen(major=major, minor=minor))


@pytest.mark.parametrize(
    ("ranks", "more", "expected"),
    [
        (2, {}, (3000, 1000)),
        (4, {}, (3000, 1000)),
        (8, {}, (4000, 1333)),
        (2, {"core": {"non_torch": constants(tensor_hopper={"2": 600})}}, (600, 300)),
        (2, {"major": 10}, (3000, 1000)),
        (4, {"major": 8}, (2500, 300 * MiB)),
        (2, {"major": 8}, (2500, 300 * MiB)),
        (2, {"nvswitch": False}, (2000, 300)),
        (2, {"core": {"non_torch": constants(tensor_hopper={"4": 1})}}, (2500, 300)),
    ],
)
def test_ranks_by_card_and_link(ranks, more, expected):
    assert expected == outside._tensor_parallel(chosen(**more), ranks)


def test_the_band_of_other_switched_cards_is_wider():
    assert 300 == outside._tensor_half_width(chosen())
    assert 300 * MiB == outside._tensor_half_width(chosen(major=8))
    assert 300 == outside._tensor_half_width(chosen(major=8, nvswitch=False))
    wide = chosen(major=8, core={"non_torch": constants(spread_tensor=10**9)})
    assert 10**9 == outside._tensor_half_width(wide)


@pytest.mark.parametrize(("ranks", "expected"), [(1, None), (2, 3000), (7, 3000), (8, 4000), (16, 4000)])
def test_the_largest_listed_number_of_ranks_counts(ranks, expected):
    assert expected == outside._largest_listed({"2": 3000, "8": 4000}, ranks)


# ---- buffers of the second runner ----


@pytest.mark.parametrize(
    ("v2", "consumed", "counted", "uncounted"),
    [(True, True, True, False), (True, False, False, True), (False, True, False, False), (False, False, False, False)],
)
def test_penalty_counts_stand_inside_a_budget_that_goes_by_free_memory_else_beside_it(v2, consumed, counted, uncounted):
    settings = chosen(runner_v2=v2, release={"consumed_accounting": consumed})
    size = serving_buffers.penalty_counts(max_num_seqs=4, vocab_size=1000)

    assert size * counted == outside.counted_runner_buffers(MODEL, settings)
    assert size * uncounted == outside.uncounted_runner_buffers(MODEL, settings)


# ---- context and communicator ----


def test_the_context_of_a_card():
    bare = device_context.cuda(multiprocessors=100)
    libraries, most = device_context.torch_libraries(), device_context.torch_libraries_most()

    assert Amount(int(bare * 0.95), bare + libraries, bare + most) == outside._context(chosen())
    assert within(device_context.rocm(), 0.2, 1.0) == outside._context(chosen(rocm=True))


def banded(amount, part):
    return Amount(int(amount * (1 - part)), amount, int(amount * (1 + part)))


def test_the_communicator_by_link_and_ranks():
    custom, symmetric = runtime.custom_all_reduce(), runtime.symmetric_memory(tensor_parallel_size=2, major=9)
    more = runtime.symmetric_memory(tensor_parallel_size=4, major=9)

    assert banded(custom + 950 * MiB // 4, 0.8) == outside._communicator(chosen(nvswitch=False), 2)
    assert banded(custom + symmetric + 950 * MiB, 0.35) == outside._communicator(chosen(), 2)
    assert banded(custom + more + 1450 * MiB, 0.35) == outside._communicator(chosen(), 4)


@pytest.mark.parametrize(
    ("kind", "more", "found"),
    [("none", {}, False), ("fixed", {}, True), ("fixed", {"eager": True}, False)],
)
def test_fused_all_reduce_has_a_workspace(kind, more, found):
    settings = chosen(release={"fusion_workspace": kind}, **more)
    layout = SimpleNamespace(tensor_parallel_size=4, data_parallel_size=1, pipeline_parallel_size=1)
    size = runtime.fusion_workspace(tensor_parallel_size=4, major=9, granular=False)

    assert (size if found else 0) == outside._fusion(settings, layout)
    for name in ("data_parallel_size", "pipeline_parallel_size"):
        assert 0 == outside._fusion(settings, SimpleNamespace(**vars(layout) | {name: 2}))


def test_a_granular_workspace_is_another_one():
    layout = SimpleNamespace(tensor_parallel_size=4, data_parallel_size=1, pipeline_parallel_size=1)
    settings = chosen(release={"fusion_workspace": "granular"}, major=10)

    assert runtime.fusion_workspace(tensor_parallel_size=4, major=10, granular=True) == outside._fusion(
        settings, layout
    )


# ---- bands ----


def test_a_spread_reaches_no_lower_than_nothing():
    assert (Amount(0, 5, 15), Amount(5, 15, 25)) == (outside._spread(5, 10), outside._spread(15, 10))


def test_growth_on_the_host_counts_where_it_is_the_same_memory():
    band = Amount(1, 2, 3)
    grown = [runtime.growth_outside_torch(modules=m, host=h) for m, h in ((1, 10), (2, 20), (3, 30))]

    assert band == outside._with_host(band, chosen())
    assert Amount(*grown) == outside._with_host(band, chosen(unified_memory=True))


@pytest.mark.parametrize(
    ("legacy", "now", "before", "low"),
    [(False, True, False, 300), (True, True, False, 900), (False, False, False, 900), (False, True, True, 900)],
)
def test_the_other_engine_may_count_less_while_it_leaves_the_context_out(legacy, now, before, low):
    old = SimpleNamespace(context_in_budget=before, non_torch=constants())
    settings = chosen(legacy=legacy, core={"context_in_budget": now}, release={"v0": old})

    assert Amount(low, 1000, 1100) == outside._or_legacy(Amount(900, 1000, 1100), settings, 400)
    assert 0 == outside._or_legacy(Amount(0, 1000, 1100), settings, 50).low


# ---- all of it ----


def found(settings, *, ranks=1, stages=1, model=MODEL):
    layout = SimpleNamespace(tensor_parallel_size=ranks, pipeline_parallel_size=stages, data_parallel_size=1)
    return outside.outside(model, settings, layout)


def test_one_gpu_has_modules_and_no_communicator():
    answer = found(chosen())
    grown = runtime.growth_outside_torch(modules=1000, runner_buffers=0)

    assert (outside._spread(grown, 100), exactly(0), exactly(0)) == (
        answer.framework,
        answer.communicator,
        answer.communication,
    )
    assert outside._context(chosen()) == answer.context
    assert exactly(0) == found(chosen(core={"context_in_budget": True})).context


@pytest.mark.parametrize(
    ("vocabulary", "sampler", "major", "spills"),
    [(1001, "triton", 9, True), (1008, "triton", 9, False), (1001, "sort", 9, False), (1001, "triton", 8, False)],
)
def test_a_vocabulary_that_does_not_align_spills_in_one_kernel(vocabulary, sampler, major, spills):
    settings = chosen(major=major, release={"sampler": sampler})
    base = single(settings)
    answer = found(settings, model=SimpleNamespace(vocab_size=vocabulary))

    assert runtime.growth_outside_torch(modules=base + 50 * spills, runner_buffers=0) == answer.framework.expected


def test_stages_talk_to_each_other():
    answer = found(chosen(), stages=2)

    assert (outside._spread(700, 100), banded(475 * MiB, 0.6)) == (answer.framework, answer.communicator)


def test_ranks_hold_what_one_gpu_holds_and_the_rest_as_communication():
    answer = found(chosen(), ranks=2)
    framework = runtime.growth_outside_torch(modules=1000, runner_buffers=0)

    assert (exactly(framework), outside._spread(3000 - framework, 1000)) == (answer.framework, answer.communication)
    assert outside._communicator(chosen(), 2) == answer.communicator
    assert exactly(0) == found(chosen(core={"communicator_in_budget": True}), ranks=2).communicator
    low = found(chosen(core={"non_torch": constants(tensor_hopper={"2": 600})}), ranks=2)
    assert (exactly(600), outside._spread(0, 300)) == (low.framework, low.communication)


# ---- graphs ----


def shape(**more):
    usual = {"layers": 3, "hidden_size": 16, "mlp_width": 40, "experts": None, "mla": None}
    return SimpleNamespace(**usual | more)


def captured(settings=None, shaped=None, family="plain", *, lora=False, recurrent=False, ranks=1):
    return outside.graphs(shaped or shape(), settings or chosen(), family, lora=lora, recurrent=recurrent, ranks=ranks)


BUFFERS = sum(cuda_graphs.captured_buffers(rows=8, width=w, buffers=b) for w, b in ((16, 2), (40, 1)))
LAW = cuda_graphs.captured(layers=3, sizes=3, base=10, per_size=20, per_node=3) + BUFFERS


def test_graphs_are_nodes_and_buffers_of_the_largest_batch():
    found_graphs = captured()

    assert Amount(int(LAW / 1.25), LAW, int(LAW * 1.5)) == found_graphs.size
    assert exactly(0) == found_graphs.estimate
    assert outside.NO_GRAPHS == captured(chosen(eager=True))


def test_a_mixture_has_buffers_of_its_experts_and_a_wider_band():
    experts = SimpleNamespace(per_token=2, hidden_size=12)
    law = LAW + 600 + cuda_graphs.captured_buffers(rows=16, width=12, buffers=4)

    assert Amount(int(law / 1.75), law, int(law * 1.75)) == captured(shaped=shape(experts=experts)).size


@pytest.mark.parametrize("specialized", [True, False])
def test_adapters_add_nodes_and_perhaps_a_second_capture(specialized):
    settings = chosen(release={"cudagraph_specialize_lora": specialized})
    more = cuda_graphs.captured_adapters(layers=3, sizes=3, per_node=5 + 3 * specialized)

    assert LAW + more == captured(settings, lora=True).size.expected


def test_bitsandbytes_unpacks_for_batches_of_more_than_one():
    more = 900 + cuda_graphs.dequantized_gate_up(hidden_size=16, width=40, element_bytes=2)

    assert LAW + more == captured(family="bitsandbytes").size.expected
    one = chosen(captures=(1,))
    assert captured(one).size == captured(one, family="bitsandbytes").size


@pytest.mark.parametrize(
    ("mla", "mode", "drafts", "rows"),
    [
        (8, "full_and_piecewise", 0, 4),
        (8, "full_and_piecewise", 3, 8),
        (None, "full_and_piecewise", 0, 0),
        (8, "piecewise", 0, 0),
    ],
)
def test_an_indexer_scores_the_largest_batch_of_a_full_graph(mla, mode, drafts, rows):
    settings = chosen(release={"cudagraph_mode": mode}, speculative_tokens=drafts)
    latent = shape(mla=SimpleNamespace(index_topk=mla))
    more = cuda_graphs.indexer_logits(rows=rows, max_model_len=64) if rows else 0

    assert LAW + more == captured(settings, latent).size.expected


def test_tuning_of_recurrent_layers_may_take_more():
    assert LAW + 10_000 == captured(recurrent=True).size.high
    small = chosen(core={"graphs": graph_size(recurrent_tuning=1)})
    assert int(LAW * 1.5) == captured(small, recurrent=True).size.high


def test_the_second_runner_s_first_capture_may_take_more():
    found = captured(chosen(runner_v2=True)).size

    assert found.expected + 20_000 == found.high


def test_what_capture_gives_back_makes_the_printed_change_smaller():
    giving = {"graphs": graph_size(may_give_back=True)}

    assert 0 == captured(chosen(core=giving, data_centre=True)).size.low
    assert captured().size.low == captured(chosen(core=giving, data_centre=False)).size.low > 0


def test_reductions_without_a_switch():
    more = cuda_graphs.captured_reductions(layers=3, sizes=3, per_reduction=7)
    plain = captured().size
    two, four = (captured(chosen(nvswitch=False), ranks=n).size for n in (2, 4))

    assert Amount(plain.low, plain.expected, plain.high + more) == two
    assert Amount(plain.low, plain.expected + more // 2, plain.high + more) == four
    assert plain == captured(ranks=4).size
    assert plain == captured(chosen(nvswitch=False)).size


@pytest.mark.parametrize(
    ("rule", "v2", "rocm", "factor"),
    [("none", False, False, 0), ("all", False, False, 2), ("all", True, False, 3), ("v1", False, False, 2),
     ("v1", True, False, 0), ("all", False, True, 0)],
)  # fmt: skip
def test_what_the_engine_sets_aside_for_graphs(rule, v2, rocm, factor):
    settings = chosen(release={"graph_estimate": rule}, runner_v2=v2, rocm=rocm)

    assert factor * LAW == captured(settings).estimate.expected
    assert (LAW // 2 if v2 else LAW) == captured(settings).size.expected


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, "usual"),
        ({"core": {"graphs_other": "other"}}, "usual"),
        ({"core": {"graphs_other": "other"}, "data_centre": False}, "other"),
        ({"data_centre": False}, "usual"),
        ({"core": {"graphs_rocm": "amd"}, "rocm": True}, "amd"),
        ({"core": {"graphs_rocm": "amd"}}, "usual"),
        ({"rocm": True}, "usual"),
    ],
)
def test_constants_of_graphs_by_card(more, expected):
    found_constants = outside._constants(chosen(**more))

    assert expected == (found_constants if isinstance(found_constants, str) else "usual")
