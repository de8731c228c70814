"""Price lists become overlays that load; what is not understood is listed, never dropped."""

import csv
import importlib.util
import io
from decimal import Decimal

import pytest

from tonnage.catalog import load_catalog
from tonnage.catalog.imports import gpuhunt_offers, price_list
from tonnage.errors import CatalogError

SOURCE = {"source": "price list of the year", "as_of": "2026-11-01"}
GPUHUNT = """\
instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot,disk_size,gpu_vendor,flags
p4d.24xlarge,us-east-1,21.957642,96,1152.0,8,A100,40.0,False,,nvidia,
p4d.24xlarge,us-east-1,11.5,96,1152.0,8,A100,40.0,True,,nvidia,
p4de.24xlarge,us-east-1,27.44705,96,1152.0,8,A100,80.0,False,,nvidia,
t3.micro,us-east-1,0.01,2,1.0,0,,,False,,,
box,nowhere,1.0,2,1.0,1,RTX2030,6.0,False,,nvidia,
ds,nowhere,0,2,1.0,1,L4,24.0,False,,nvidia,
pro,eu,1.89,16,64,1,RTXPRO6000,96.0,False,500,nvidia,
old,eu,0.3,16,64,1,RTX6000,24.0,False,500,nvidia,
"""


@pytest.fixture(scope="module")
def catalog():
    return load_catalog()


def loaded(imported, tmp_path):
    (tmp_path / "imported.toml").write_text(imported.toml)
    return load_catalog(tmp_path)


def test_a_price_list_becomes_packages(catalog, tmp_path):
    text = (
        "provider,gpu,price,gpus_per_host,region,host_memory,disk,kind,currency\n"
        "acme,NVIDIA L40S,1.20,2,berlin,512 GiB,2 TB,on-demand,EUR\n"
        "acme,L40S,0.60,2,berlin,512 GiB,2 TB,spot,EUR\n"
        "acme,H100,2.99,,,,,,\n"
    )
    imported = price_list(catalog, text, **SOURCE)
    assert (2, 3, ()) == (imported.packages, imported.offers, imported.skipped)
    packages = loaded(imported, tmp_path).packages
    package = packages.get("acme:2x-l40s:berlin")
    assert ("l40s", 2, 512 * 2**30, 2 * 10**12) == (
        package.gpu,
        package.gpus_per_host,
        package.host_memory_bytes,
        package.disk_bytes,
    )
    assert [("on-demand", Decimal("1.20"), "EUR", "2026-11-01"), ("spot", Decimal("0.60"), "EUR", "2026-11-01")] == [
        (o.kind, o.price, o.currency, o.as_of) for o in package.offers
    ]
    assert "h100-sxm" == packages.get("acme:1x-h100-sxm:global").gpu


def test_a_fixed_term_is_a_price_of_its_own(catalog, tmp_path):
    text = "id,provider,gpu,price,kind,per,term_hours\nacme:three-days,acme,rtx-4090,47.14,package,term,72\n"
    offer = loaded(price_list(catalog, text, **SOURCE), tmp_path).packages.get("acme:three-days").offers[0]
    assert (Decimal("47.14"), "term", 72) == (offer.price, offer.per, offer.term_hours)


def test_a_known_package_keeps_what_the_list_does_not_say(catalog, tmp_path):
    text = "id,provider,gpu,price,gpus_per_host\naws:p5.48xlarge:us-east-1,aws,h100-sxm,30,8\n"
    package = loaded(price_list(catalog, text, **SOURCE), tmp_path).packages.get("aws:p5.48xlarge:us-east-1")
    assert (192, Decimal(30), SOURCE["source"]) == (package.vcpus, package.offers[0].price, package.offers[0].source)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("acme,H101,1", "unknown gpu 'H101'"), ("acme,H100,free", "row 2"), ("acme,H100,0", "not above 0"),
        ("acme,H100,-1", "not above 0"), ("acme,H100,NaN", "not above 0"), ("acme,H100,", "row 2"),
    ],
)  # fmt: skip
def test_a_row_that_is_not_understood_is_listed(catalog, row, reason):
    imported = price_list(catalog, f"provider,gpu,price\n{row}\n", **SOURCE)
    assert 0 == imported.packages
    assert reason in imported.skipped[0]


@pytest.mark.parametrize(
    ("header", "message"),
    [("provider,gpu", "lacks price"), ("provider,gpu,price,colour", "unknown columns colour"), ("", "lacks")],
)
def test_a_header_that_is_not_understood_is_refused(catalog, header, message):
    with pytest.raises(CatalogError, match=message):
        price_list(catalog, header + "\n", **SOURCE)


def test_text_in_a_list_cannot_break_out_of_its_field(catalog, tmp_path):
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["provider", "gpu", "price", "notes"])
    note = 'a "quoted" \\ note = [[gpu]] \u2028 \x7f'
    writer.writerow(["acme", "L4", "1", note])
    assert (
        note.strip()
        == loaded(price_list(catalog, out.getvalue(), **SOURCE), tmp_path).packages.get("acme:1x-l4:global").notes
    )


def test_gpuhunt_offers_become_packages(catalog, tmp_path):
    rows = csv.DictReader(io.StringIO(GPUHUNT))
    imported = gpuhunt_offers(catalog, rows, provider="cloud", source="gpuhunt 0.1.34", as_of="2026-11-01")
    packages = loaded(imported, tmp_path).packages
    both = packages.get("cloud:p4d.24xlarge:us-east-1")
    assert ("a100-40-sxm", 8, 96, 1_152_000_000_000) == (
        both.gpu,
        both.gpus_per_host,
        both.vcpus,
        both.host_memory_bytes,
    )
    assert [("on-demand", Decimal("21.957642")), ("spot", Decimal("11.5"))] == [(o.kind, o.price) for o in both.offers]
    assert "a100-80-sxm" == packages.get("cloud:p4de.24xlarge:us-east-1").gpu
    assert "rtx-pro-6000-server" == packages.get("cloud:pro:eu").gpu
    assert "quadro-rtx-6000" == packages.get("cloud:old:eu").gpu


def test_offers_as_gpuhunt_itself_writes_them_become_packages(catalog, tmp_path):
    """Every accelerator that gpuhunt knows, in the file that it makes; the well-known ones are known here too."""
    if importlib.util.find_spec("gpuhunt") is None:
        pytest.skip("not run: gpuhunt is not installed (make test-extras)")
    import gpuhunt
    from gpuhunt._internal.storage import dump

    known = [*gpuhunt.KNOWN_NVIDIA_GPUS, *gpuhunt.KNOWN_AMD_GPUS]
    offer = {"provider": "cloud", "location": "eu", "cpu": 8, "memory": 64.0, "gpu_count": 2, "disk_size": None}
    items = [
        gpuhunt.CatalogItem(
            instance_name=f"box-{number}", price=1.5, gpu_name=gpu.name, gpu_memory=float(gpu.memory), spot=spot,
            gpu_vendor=gpu.vendor, **offer,
        )
        for number, gpu in enumerate(known)
        for spot in (False, True)
    ]  # fmt: skip
    dump(items, str(tmp_path / "cloud.csv"))
    with (tmp_path / "cloud.csv").open(newline="") as file:
        imported = gpuhunt_offers(catalog, csv.DictReader(file), provider="cloud", source="gpuhunt", as_of="2026-11-01")
    packages = loaded(imported, tmp_path).packages
    taken = {number: packages.find(f"cloud:box-{number}:eu") for number in range(len(known))}
    names = {gpu.name for number, gpu in enumerate(known) if taken[number]}

    assert 60 < imported.packages == sum(package is not None for package in taken.values())
    assert len(items) == imported.offers + len(imported.skipped)
    assert {"T4", "L4", "L40S", "A10G", "A100", "H100", "H200", "B200", "RTX4090", "RTX5090", "MI300X"} <= names
    assert {(2, 8, 2)} == {(p.gpus_per_host, p.vcpus, len(p.offers)) for p in taken.values() if p}


def test_gpuhunt_rows_without_a_known_gpu_or_price_are_listed(catalog):
    rows = csv.DictReader(io.StringIO(GPUHUNT))
    skipped = gpuhunt_offers(catalog, rows, provider="cloud", source="gpuhunt", as_of="2026-11-01").skipped
    assert [
        "row 5: no GPU",
        "row 6: no GPU 'RTX2030' of 6 GB in the catalogue",
        "row 7: price 0 is not above 0",
    ] == list(skipped)
