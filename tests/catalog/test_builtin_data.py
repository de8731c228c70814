"""The built-in facts: complete, sourced, resolvable by every name they give."""

from decimal import Decimal

import pytest

from tonnage.catalog import load_catalog
from tonnage.catalog.gpus import find_gpu
from tonnage.catalog.listing import model_row
from tonnage.catalog.models import find_model
from tonnage.units import GiB, MiB


@pytest.fixture(scope="module")
def catalog():
    return load_catalog()


def test_everything_known_is_there(catalog):
    sizes = {kind: len(getattr(catalog, kind)) for kind in ("gpus", "packages", "models")}
    assert {"gpus": 164, "packages": 256, "models": 426} == sizes
    assert len(catalog.optimizers) >= 40
    assert len(catalog.formats) >= 98
    assert len(catalog.kv_formats) >= 14


@pytest.mark.parametrize(
    "kind", ["gpus", "packages", "formats", "kv_formats", "optimizers", "models", "engines", "frameworks"]
)
def test_every_record_names_its_source(catalog, kind):
    assert [] == [record.id for record in getattr(catalog, kind) if not record.source.strip()]


@pytest.mark.parametrize("kind", ["gpus", "formats", "kv_formats", "optimizers", "engines", "frameworks"])
def test_every_id_and_alias_finds_its_record_whatever_its_case(catalog, kind):
    index = getattr(catalog, kind)
    for record in index:
        for name in (record.id, *record.aliases):
            assert {record.id} == {index.get(n).id for n in (name, name.upper(), name.lower())}


def test_every_repository_of_an_architecture_finds_a_model(catalog):
    for model in catalog.models:
        assert model is catalog.models.get(model.id)
        for name in model.same_architecture:
            found = catalog.models.get(name)
            assert found.config.keys() == model.config.keys() or found.id == name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("H100", "h100-sxm"), ("h100 sxm5", "h100-sxm"), ("NVIDIA H100 80GB HBM3", "h100-sxm"), ("H100 PCIe", "h100-pcie"),
        ("A100 80GB", "a100-80-sxm"), ("a100-40gb", "a100-40-sxm"), ("NVIDIA A100-SXM4-80GB", "a100-80-sxm"),
        ("RTX 4090", "rtx-4090"), ("rtx4090", "rtx-4090"), ("NVIDIA GeForce RTX 4090", "rtx-4090"), ("4090", "rtx-4090"),
        ("NVIDIA L40S", "l40s"), ("RTX 6000 Ada", "rtx-6000-ada"), ("RTX A6000", "rtx-a6000"), ("MI300X", "mi300x"),
        ("AMD Instinct MI300X", "mi300x"), ("Tesla T4", "t4"), ("DGX Spark", "gb10"), ("B200", "b200-sxm"),
        ("Tesla V100-SXM2-32GB", "v100-32"), ("RTX PRO 6000", "rtx-pro-6000-server"),
        ("Apple M3 Ultra 512GB", "apple-m3-ultra-512"),
    ],
)  # fmt: skip
def test_boards_are_found_by_the_names_people_and_drivers_use(catalog, name, expected):
    assert expected == find_gpu(catalog, name)[0].id


def test_a_loose_name_is_an_assumption_and_an_exact_one_is_not(catalog):
    assert "A100-SXM4-80GB" in find_gpu(catalog, "A100")[1].why
    assert find_gpu(catalog, "a100-80-sxm")[1] is None
    assert find_gpu(catalog, "NVIDIA A100-SXM4-80GB")[1] is None


@pytest.mark.parametrize(
    ("gpu", "device_mib", "usable_mib"),
    [("h100-sxm", 81559, 80998), ("rtx-4090", 24564, 24084), ("a100-80-sxm", 81920, 81039), ("h200-sxm", 143771, 143073),
     ("t4", 15360, 14909), ("mi300x", 196592, 196290), ("l40s", 46068, 45455)],
)  # fmt: skip
def test_capacities_are_what_drivers_and_allocators_print(catalog, gpu, device_mib, usable_mib):
    record = catalog.gpus.get(gpu)
    assert (device_mib * MiB, usable_mib * MiB) == (record.memory_device_bytes, record.memory_usable_bytes)


def test_a_capacity_without_a_printed_total_is_not_called_seen(catalog):
    for gpu in catalog.gpus:
        if "largest reserve seen on" in gpu.memory_source or "95 %" in gpu.memory_source or "96 %" in gpu.memory_source:
            assert gpu.usable_confidence in ("derived", "estimated")


def test_usable_memory_stays_between_nine_tenths_and_the_whole_board(catalog):
    for gpu in catalog.gpus:
        if gpu.memory_device_bytes is not None:
            assert 0.9 < gpu.memory_usable_bytes / gpu.memory_device_bytes < 1


def test_the_device_context_law_finds_multiprocessors_of_every_nvidia_card_but_one(catalog):
    assert ["b100"] == [g.id for g in catalog.gpus if g.vendor == "nvidia" and g.multiprocessors is None]


def test_a_mig_slice_is_a_gpu_of_its_own(catalog):
    whole = catalog.gpus.get("h100-sxm")
    part, _ = find_gpu(catalog, "H100:1g.10gb")
    assert "h100-sxm:1g.10gb" == part.id
    assert "h100-sxm" == part.mig_parent
    assert int(9.62 * 1024) * MiB == part.memory_usable_bytes
    assert part.memory_usable_expected_bytes is None
    assert 132 // 7 == part.multiprocessors
    assert 10_000_000_000 == part.memory_nominal_bytes
    assert (
        whole.bandwidth_bytes_per_second // 9 < part.bandwidth_bytes_per_second < whole.bandwidth_bytes_per_second // 7
    )


def test_mig_slices_never_hold_more_than_their_share_in_sum(catalog):
    for gpu in catalog.gpus:
        for profile in gpu.mig_profiles:
            assert (
                profile.memory_usable_bytes * profile.max_instances <= gpu.memory_device_bytes * 1.01
                if gpu.memory_device_bytes
                else True
            )


def test_the_two_packages_for_three_days_have_their_published_prices(catalog):
    found = {p.gpu: p.offers[0] for p in catalog.packages if p.provider == "iteragpu"}
    assert {"rtx-4090": Decimal("47.14"), "rtx-6000-ada": Decimal("55.71")} == {
        gpu: o.price for gpu, o in found.items()
    }
    assert {("package", "term", 72, None)} == {(o.kind, o.per, o.term_hours, o.as_of) for o in found.values()}


def test_every_package_has_a_price_and_a_gpu(catalog):
    for package in catalog.packages:
        assert package.offers
        assert package.gpu in catalog.gpus.entries


def test_a_part_of_a_gpu_is_marked_as_such(catalog):
    shares = {p.id: p.gpu_share for p in catalog.packages if p.gpu_share}
    assert {"aws:g6f.4xlarge:us-east-1": 0.5, "vultr:vcg-a100-6c-60g-40vram:n/a": 0.5} == shares


def test_doubtful_prices_are_marked(catalog):
    doubtful = {p.provider for p in catalog.packages for o in p.offers if not o.confirmed}
    assert {"runpod", "seeweb"} == doubtful


def test_host_memory_is_binary(catalog):
    assert 2048 * GiB == catalog.packages.get("aws:p5.48xlarge:us-east-1").host_memory_bytes


def test_published_nulls_come_back(catalog):
    assert {"q_lora_rank": None}.items() <= catalog.models.get("deepseek-ai/DeepSeek-V2-Lite").config.items()
    assert "null_keys" not in str([model.config for model in catalog.models])


def test_the_version_names_the_content(catalog):
    assert catalog.version == load_catalog().version
    assert 12 == len(catalog.version)


PACKED = ("fp8", "fp4", "nvfp4", "mxfp4", "awq", "gptq", "int4", "int8", "bnb-4bit", "4bit", "w4a16", "w8a8")


def test_no_repository_whose_name_ends_in_a_packed_format_is_taken_for_16_bit(catalog):
    names = [name for facts in catalog.models for name in (facts.id, *facts.same_architecture, *facts.aliases)]
    packed = [find_model(catalog, name).model for name in names if name.lower().endswith(PACKED)]
    assert 20 < len(packed)
    assert [] == [model.id for model in packed if model.weight_format is None]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nvidia/DeepSeek-V3.1-NVFP4", "nvfp4"),
        ("nvidia/Llama-3.1-70B-Instruct-FP8", "fp8-per-tensor"),
        ("moonshotai/Kimi-K2-Thinking", "ct-w4a16-g32"),
        ("mistralai/Mistral-Large-3-675B-Instruct-2512", "fp8-per-tensor"),
        ("meta-llama/Llama-3.1-70B-Instruct", "bf16"),
    ],
)
def test_a_checkpoint_has_the_format_it_is_published_in(catalog, name, expected):
    model = find_model(catalog, name).model
    assert (expected, expected) == (
        model.weight_format or model.dtype,
        model_row(catalog.models.get(name)).weight_format,
    )
