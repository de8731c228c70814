"""`tonnage catalog ...`: lists, entries, overlays checked and compared, price lists imported."""

import csv
import io
import json

import pytest
import yaml

OVERLAY = """
[[gpu]]
id = "l40s"
memory_usable_bytes = 47000000000

[[package]]
id = "acme:box"
provider = "acme"
gpu = "l40s"
gpus_per_host = 1
source = "price list"
offers = [{ kind = "on-demand", price = "1.00", as_of = "2026-11-01" }]
"""
PRICES = "provider,gpu,price,gpus_per_host,region\nacme,NVIDIA L40S,1.20,2,berlin\nacme,Voodoo 2,0.10,1,berlin\n"
OFFERS = """\
instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot,disk_size
p4d.24xlarge,us-east-1,21.957642,96,1152.0,8,A100,40.0,False,
"""


@pytest.fixture
def overlay(tmp_path):
    (tmp_path / "own.toml").write_text(OVERLAY)
    return tmp_path


def test_a_list_filters_and_sorts_as_the_service_does(tonnage):
    out = tonnage("catalog", "list", "gpus", "vendor=nvidia", "q=l40", "sort=-id", "--format", "json").out

    assert ["l40s", "l40"] == [row["id"] for row in json.loads(out)]


@pytest.mark.parametrize("kind", ["models", "gpus", "skus", "formats", "kv-formats", "engines", "optimizers", "laws"])
def test_every_kind_is_listed_whole_and_shown(tonnage, kind):
    rows = list(csv.DictReader(io.StringIO(tonnage("catalog", "list", kind, "--format", "csv").out)))
    first = rows[0]["id"]

    assert len(rows) == len({row["id"] for row in rows}) > 2
    assert first == yaml.safe_load(tonnage("catalog", "show", kind, first).out)["id"]
    assert first == json.loads(tonnage("catalog", "show", kind, first, "--format", "json").out)["id"]


def test_a_table_is_narrow_and_columns_are_chosen(tonnage):
    assert 6 == len(tonnage("catalog", "list", "gpus", "limit=1").out.splitlines()[0].split())
    out = tonnage("catalog", "list", "gpus", "q=l40s", "--columns", "id,memory_usable_bytes").out
    assert ["id", "memory_usable_bytes"] == out.split()[:2]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("list", "gpus", "vender=nvidia"), "did you mean vendor"),
        (("list", "gpus", "--columns", "id,price"), "no column 'price'"),
        (("list", "nothing"), "invalid choice"),
        (("show", "gpus", "h100-sxn"), "did you mean h100-sxm"),
        (("validate", "nowhere"), "not a directory"),
        (("diff", "builtin", "nowhere"), "not a directory"),
        (("import", "csv", "nowhere.csv"), "nowhere.csv"),
    ],
)
def test_refusals_name_what_is_wrong(tonnage, words, said):
    ended = tonnage("catalog", *words)

    assert (1, "") == (ended.code, ended.out)
    assert said in ended.err


def test_a_good_overlay_is_usable(tonnage, overlay):
    ended = tonnage("catalog", "validate", overlay)

    assert 0 == ended.code
    assert "2 records differ" in ended.out


def test_every_problem_of_an_overlay_is_listed(tonnage, overlay):
    (overlay / "own.toml").write_text(OVERLAY.replace('gpu = "l40s"', 'gpu = "l40z"') + "vcpu = 3\n")

    ended = tonnage("catalog", "validate", overlay)

    assert (1, "") == (ended.code, ended.out)
    assert "own.toml" in ended.err


def test_a_count_that_the_config_does_not_make_is_a_problem(tonnage, tmp_path, repository):
    recipe = (repository / "docs" / "adding.md").read_text()
    lines = recipe.split("own/models.toml <<'END'\n")[1].split("> END")[0].splitlines()
    text = "\n".join(line.removeprefix(">").removeprefix(" ") for line in lines)
    (tmp_path / "models.toml").write_text(text.replace("1_235_814_400", "1_300_000_000"))

    ended = tonnage("catalog", "validate", tmp_path)

    assert 1 == ended.code
    assert "makes 1,235,814,400 parameters, the record says 1,300,000,000" in ended.err


def test_a_diff_names_each_field(tonnage, overlay):
    found = json.loads(tonnage("catalog", "diff", "builtin", overlay, "--format", "json").out)
    table = tonnage("catalog", "diff", "builtin", overlay).out

    assert [("gpus", "l40s"), ("packages", "acme:box")] == [(c["kind"], c["id"]) for c in found]
    assert 47_000_000_000 == found[0]["fields"]["memory_usable_bytes"][1]
    assert "memory_usable_bytes" in table
    assert "" == tonnage("catalog", "diff", "builtin", "builtin").out


def test_a_price_list_becomes_an_overlay_that_a_fit_uses(tonnage, tmp_path):
    (tmp_path / "prices.csv").write_text(PRICES)
    (tmp_path / "overlay").mkdir()
    file = tmp_path / "overlay" / "acme.toml"

    ended = tonnage("catalog", "import", "csv", tmp_path / "prices.csv", "--as-of", "2026-11-01", "-o", file)

    assert 0 == ended.code
    assert "not taken: row 3" in ended.err
    assert "1 packages, 1 prices, 1 rows not taken" in ended.err
    assert 0 == tonnage("catalog", "validate", tmp_path / "overlay").code
    fit = ("fit", "model.parameters=7000000000", "providers=acme", "--overlay", tmp_path / "overlay")
    assert "acme:2x-l40s:berlin" in tonnage(*fit).out


def test_offers_of_gpuhunt_are_named_after_their_file(tonnage, tmp_path):
    (tmp_path / "aws.csv").write_text(OFFERS)

    ended = tonnage("catalog", "import", "gpuhunt", tmp_path / "aws.csv", "--as-of", "2026-11-01")

    assert 0 == ended.code
    assert 'id = "aws:p4d.24xlarge:us-east-1"' in ended.out


def test_the_environment_names_the_overlay_too(process, overlay):
    import os

    ended = process("catalog", "show", "gpus", "l40s", env={**os.environ, "TONNAGE_CATALOG_DIR": str(overlay)})

    assert "memory_usable_bytes: 47000000000" in ended.out
