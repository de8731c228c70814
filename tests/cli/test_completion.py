"""Completion scripts complete commands, options, fields and ids, in shells that are there."""

import shutil
import subprocess

import pytest

from tonnage.catalog import load_catalog
from tonnage.cli.completion import script

LINES = {
    "tonnage es": (["tonnage", "es"], ["estimate"]),
    "tonnage catalog v": (["tonnage", "catalog", "v"], ["validate"]),
    "tonnage catalog list gp": (["tonnage", "catalog", "list", "gp"], ["gpus"]),
    "tonnage estimate gpu=h100-n": (["tonnage", "estimate", "gpu", "=", "h100-n"], ["h100-nvl"]),
    "tonnage estimate --gpu h100-n": (["tonnage", "estimate", "--gpu", "h100-n"], ["h100-nvl"]),
    "tonnage estimate --max-model": (["tonnage", "estimate", "--max-model"], ["--max-model-len"]),
    "tonnage estimate max_model": (["tonnage", "estimate", "max_model"], ["max_model_len="]),
    "tonnage fit skus=iteragpu:rtx-4": (
        ["tonnage", "fit", "skus", "=", "iteragpu", ":", "rtx-4"],
        ["rtx-4090:1x:3d"],
    ),
}


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    folder, catalog = tmp_path_factory.mktemp("completion"), load_catalog()
    for shell in ("bash", "zsh", "fish"):
        (folder / shell).write_text(script(shell, catalog))
    return folder


def shell(name, text):
    if shutil.which(name) is None:
        pytest.skip(f"not run: {name} is not installed")
    options = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[name]
    return subprocess.run([name, *options, "-c", text], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("line", LINES)
def test_bash_completes(scripts, line):
    words, expected = LINES[line]
    text = (
        f'. {scripts}/bash; COMP_LINE="{line}"; COMP_POINT={len(line)}; COMP_WORDS=({" ".join(words)}); '
        f'COMP_CWORD={len(words) - 1}; _tonnage; printf "%s\\n" "${{COMPREPLY[@]}}"'
    )

    assert expected == shell("bash", text).split()


@pytest.mark.parametrize("line", LINES)
def test_fish_completes(scripts, line):
    _, expected = LINES[line]

    found = shell("fish", f"source {scripts}/fish; complete -C '{line}'").split()

    assert [found[0].rpartition(expected[0])[1]] == expected
    assert 1 == len(found)


def test_zsh_reads_its_script(scripts):
    assert "" == shell("zsh", f"zsh -f -n {scripts}/zsh")


def test_the_scripts_hold_every_command(scripts, tonnage):
    for name in ("bash", "zsh", "fish"):
        text = (scripts / name).read_text()
        assert {"#COMMANDS#", "#VALUES#"} & set(text.split()) == set()
        assert all(f"'{command}')" in text or f"'{command}'\n" in text for command in ("estimate", "catalog diff"))


def test_it_is_a_command(tonnage):
    assert "complete -F _tonnage tonnage" in tonnage("completion", "bash").out
    assert 1 == tonnage("completion", "tcsh").code
