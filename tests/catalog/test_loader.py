"""Loading is strict, names what is wrong and where, and an overlay changes only what it says."""

from decimal import Decimal

import pytest

from tonnage.catalog import load_catalog
from tonnage.catalog.bind import bound_law, check_arguments
from tonnage.errors import CatalogError

GPU = """
[[gpu]]
id = "own-card"
name = "Own Card"
vendor = "own"
memory_nominal_bytes = 48_000_000_000
memory_device_bytes = 48_000_000_000
memory_usable_bytes = 47_000_000_000
source = "test"
"""
P5 = "aws:p5.48xlarge:us-east-1"
PACKAGE = """
[[package]]
id = "own:box"
provider = "own"
gpu = "rtx-4090"
gpus_per_host = 2
offers = [{ kind = "on-demand", price = "1.50" }]
source = "test"
"""
OPTIMIZER = """
[[optimizer]]
id = "o"
name = "O"
states = 1
state_bytes = 1
source = "t"
"""
RELEASE = 'engine = "vllm"\n[[release]]\nsince = "98"\nsource = "t"\n'


@pytest.fixture
def overlay(tmp_path):
    def write(text, name="overlay.toml"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return tmp_path

    return write


def test_an_overlay_adds_records_in_any_file(overlay):
    catalog = load_catalog(overlay(GPU + PACKAGE, "whatever/prices.toml"))
    assert 47_000_000_000 == catalog.gpus.get("own card").memory_usable_bytes
    assert Decimal("1.50") == catalog.packages.get("own:box").offers[0].price
    assert "test" == catalog.packages.get("own:box").offers[0].source


def test_an_overlay_changes_only_the_fields_it_names(overlay):
    before = load_catalog()
    text = f'[[package]]\nid = "{P5}"\noffers = [{{ kind = "reserved", price = "30", source = "contract" }}]\n'
    after = load_catalog(overlay(text))
    old, new = (c.packages.get(P5) for c in (before, after))
    assert (Decimal(30), "contract") == (new.offers[0].price, new.offers[0].source)
    assert (old.gpu, old.vcpus, old.source) == (new.gpu, new.vcpus, new.source)
    assert len(before.packages) == len(after.packages)
    assert before.version != after.version


def test_an_overlay_withdraws_records(overlay):
    catalog = load_catalog(overlay('[[package]]\nid = "aws:p5.48xlarge:us-east-1"\nwithdrawn = true\n'))
    assert "aws:p5.48xlarge:us-east-1" not in catalog.packages


def test_files_of_a_mounted_config_map_are_read_once(overlay):
    root = overlay(GPU, "..2026_11_30/prices.toml")
    (root / "prices.toml").symlink_to(root / "..2026_11_30" / "prices.toml")
    assert "own-card" in load_catalog(root).gpus


def test_an_empty_overlay_changes_nothing_but_is_fine(tmp_path):
    assert load_catalog().version == load_catalog(tmp_path).version


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GPU.replace("vendor =", "vender ="), r"overlay.toml: gpu 'own-card': .*vender"),
        (GPU.replace("47_000_000_000", '"47 GB"'), r"gpu 'own-card': .*`int`, got `str` - at `\$.memory_usable_bytes`"),
        (GPU.replace("47_000_000_000", "49_000_000_000"), r"gpu 'own-card': memory_usable_bytes is above"),
        (GPU + "memory_usable_expected_bytes = 46_000_000_000\n", r"memory_usable_expected_bytes lies outside"),
        (GPU.replace('source = "test"\n', ""), r"gpu 'own-card': .*`source`"),
        (GPU + GPU, r"gpu 'own-card' is there twice"),
        (GPU.replace('"Own Card"', '"Own Card"\naliases = ["RTX 4090"]'), r"already belongs to 'own-card'|already belongs"),
        (GPU + 'default_for = ["RTX 4090"]\n', r"gpu 'own-card': the loose name 'RTX 4090' already belongs to 'rtx-4090'"),
        (GPU + 'default_for = ["a100"]\n', r"gpu 'own-card': the loose name 'a100' already belongs to 'a100-80-sxm'"),
        ('[[gpu]]\nname = "x"\n', r"overlay.toml: gpu number 1 has no id"),
        (PACKAGE.replace('"1.50"', "true"), r"package 'own:box': .*\$.offers\[0\].price"),
        (PACKAGE.replace('"1.50"', '"0"'), r"package 'own:box': price 0 is not above 0"),
        (PACKAGE.replace('"1.50"', '"-3"'), r"price -3 is not above 0"),
        (PACKAGE.replace('"1.50"', '"NaN"'), r"price NaN is not above 0"),
        (PACKAGE.replace('"1.50"', '"1", as_of = "2099-01-01"'), r"price date 2099-01-01 lies in the future"),
        (PACKAGE.replace('"1.50"', '"1", as_of = "soon"'), r"\$.offers\[0\].as_of"),
        (PACKAGE.replace('"1.50"', '"1", per = "term"'), r"term_hours belongs to per = 'term'"),
        (PACKAGE.replace("rtx-4090", "rtx-4091"), r"package 'own:box': there is no gpu 'rtx-4091'"),
        (PACKAGE.replace("gpus_per_host = 2", "gpus_per_host = 0"), r"\$.gpus_per_host"),
        ('[[gpus]]\nid = "x"\n', r"overlay.toml: unknown table \[gpus\]; known: \[\[gpu\]\]"),
        ('gpu = 3\n', r"unknown table \[gpu\]"),
        ('gpu = [1, 2]\n', r"unknown table \[gpu\]"),
        ("not toml", r"overlay.toml: "),
        ('[[package]]\nid = "nobody:nothing"\nwithdrawn = true\n', r"withdrawn but was never there"),
        (OPTIMIZER + 'law = "no_such_law"\n', r"optimizer 'o': law 'optimizer.no_such_law'"),
        (OPTIMIZER + 'law = "blockwise_states"\n', r"law 'optimizer.blockwise_states' needs block_size"),
        (OPTIMIZER + 'law = "elementwise_states"\narguments = { colour = 1 }\n', r"takes no colour"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_file_record_and_path(overlay, text, message):
    with pytest.raises(CatalogError, match=message):
        load_catalog(overlay(text))


def test_a_missing_overlay_directory_is_an_error(tmp_path):
    with pytest.raises(CatalogError, match="not a directory"):
        load_catalog(tmp_path / "nowhere")


def test_all_problems_are_listed_at_once(overlay):
    text = GPU.replace("vendor =", "vender =") + PACKAGE.replace("rtx-4090", "rtx-4091")
    with pytest.raises(CatalogError) as error:
        load_catalog(overlay(text))
    assert 2 == len(str(error.value).splitlines())


def test_binary_files_are_refused_by_name(tmp_path):
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CatalogError, match=r"x\.toml"):
        load_catalog(tmp_path)


def test_an_engine_overlay_changes_one_release_and_adds_another(overlay):
    newest = load_catalog().engines.get("vllm").releases[-1]
    root = overlay(
        'engine = "vllm"\nknown_until = "99.0.0"\nknown_until_date = "2027-01-01"\n'
        f'[[release]]\nsince = "{newest.since}"\nblock_size = 32\n'
        '[[release]]\nsince = "99.0.0"\nsince_date = "2027-01-01"\nsource = "test"\n',
        "vllm.toml",
    )
    releases = load_catalog(root).engines.get("vllm").releases
    assert [32, 32] == [r.block_size for r in releases[-2:]]
    assert ["99.0.0", "test"] == [releases[-1].since, releases[-1].source]
    assert newest.source == releases[-2].source


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('engine = "vllm"\ncolour = "red"\n', "unknown field 'colour' in the head"),
        (RELEASE + 'since_date = "2027-01-01"\nblock_sise = 3\n', "release '98'.*block_sise"),
        (RELEASE + 'since_date = "2020-01-01"\n', "release 98 is dated before"),
        ('engine = "vllm"\nknown_until = "0.1"\n', "known_until 0.1 lies before the newest release"),
        ('engine = "nothing-known"\n[[release]]\nsince = "1"\n', "defines RELEASE for 'nothing-known'"),
        ('engine = "vllm"\nrelease = 3\n', "array of tables"),
    ],
)  # fmt: skip
def test_engine_files_are_strict(overlay, text, message):
    with pytest.raises(CatalogError, match=message):
        load_catalog(overlay(text, "engine.toml"))


def test_a_law_is_bound_by_name():
    assert "full_attention" == bound_law("kv_cache.full_attention").__name__


@pytest.mark.parametrize("name", ["kv_cache.nothing", "nowhere.full_attention", "kv_cache._private", "full_attention"])
def test_an_unknown_law_is_refused(name):
    with pytest.raises(CatalogError, match="law"):
        bound_law(name)


def test_an_argument_that_a_law_does_not_take_is_refused():
    with pytest.raises(CatalogError, match="takes no colour"):
        check_arguments("kv_cache.full_attention", given=["colour"], needed={})
