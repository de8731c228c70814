"""Completion scripts complete commands, options, fields and ids, in shells that are there."""

import os
import pty
import re
import select
import shutil
import subprocess
import time

import pytest
from tests.waiting import SECONDS

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
    "tonnage estimate --format ma": (["tonnage", "estimate", "--format", "ma"], ["markdown"]),
    "tonnage catalog list gpus --format c": (["tonnage", "catalog", "list", "gpus", "--format", "c"], ["csv"]),
    "tonnage estimate meta-llama/Llama-3.1-8B-I": (
        ["tonnage", "estimate", "meta-llama/Llama-3.1-8B-I"],
        ["meta-llama/Llama-3.1-8B-Instruct"],
    ),
    "tonnage models h100-n": (["tonnage", "models", "h100-n"], ["h100-nvl"]),
    "tonnage completion z": (["tonnage", "completion", "z"], ["zsh"]),
    "tonnage estimate --card zi": (["tonnage", "estimate", "--card", "zi"], ["zigzag.json"]),
    "tonnage catalog validate zi": (["tonnage", "catalog", "validate", "zi"], ["zigzag.json"]),
    "tonnage fit skus=iteragpu:rtx-4": (
        ["tonnage", "fit", "skus", "=", "iteragpu", ":", "rtx-4"],
        ["rtx-4090:1x:3d"],
    ),
}
ZSH = r"""
zmodload zsh/zpty
zpty inner "TERM=dumb zsh -f -i"
zpty -w inner "PS1=; unset zle_bracketed_paste; fpath=($1 \$fpath); autoload -Uz compinit; compinit -u -d $1/dump
typed() { print -r -- \"<\$BUFFER>\"; BUFFER= }; zle -N typed; bindkey '^X' typed; print ready"
zpty -r -m inner said $'*\nready*'
zpty -w -n inner "$2"$'\t\x18'
zpty -r -m inner said '*<*>*'
print -r -- "${${said##*<}%%>*}"
"""
"""An interactive zsh of its own, in which a line and a tab are typed; prints what the line became."""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    folder, catalog = tmp_path_factory.mktemp("completion"), load_catalog()
    for shell in ("bash", "zsh", "fish"):
        (folder / shell).write_text(script(shell, catalog))
    return folder


@pytest.fixture(scope="module")
def somewhere(tmp_path_factory):
    """A directory with a file that is nothing else that completes."""
    folder = tmp_path_factory.mktemp("somewhere")
    (folder / "zigzag.json").write_text("{}")
    return folder


def shell(name, *words, cwd):
    if shutil.which(name) is None:
        pytest.skip(f"not run: {name} is not installed")
    options = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[name]
    command = [name, *options, "-c", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=cwd).stdout


@pytest.mark.parametrize("line", LINES)
def test_bash_completes(scripts, somewhere, line):
    words, expected = LINES[line]
    text = (
        f'. {scripts}/bash; COMP_LINE="{line}"; COMP_POINT={len(line)}; COMP_WORDS=({" ".join(words)}); '
        f'COMP_CWORD={len(words) - 1}; _tonnage; printf "%s\n" "${{COMPREPLY[@]}}"'
    )

    assert expected == shell("bash", text, cwd=somewhere).split()


@pytest.mark.parametrize("line", LINES)
def test_a_tab_in_bash_completes_the_line(scripts, somewhere, line):
    """An interactive bash on a terminal of its own: a line and a tab are typed, a key prints what the line became."""
    _, (expected,) = LINES[line]
    start = f""". {scripts}/bash; bind -x '"\\C-x":printf "<%s>" "$READLINE_LINE"'; PS1=ready\n"""
    (scripts / "bashrc").write_text(start)
    terminal, end = pty.openpty()
    command = ["bash", "--noprofile", "--rcfile", str(scripts / "bashrc"), "-i"]
    environment = {**os.environ, "TERM": "dumb", "INPUTRC": "/dev/null"}
    process = subprocess.Popen(command, stdin=end, stdout=end, stderr=end, cwd=somewhere, env=environment)
    os.close(end)
    try:
        until(terminal, rb"ready")
        os.write(terminal, line.encode() + b"\t\x18")
        became = until(terminal, rb"<([^>]*)>")[1].decode()
    finally:
        process.kill()
        process.wait()
        os.close(terminal)

    assert became.rstrip(" ").endswith(expected)
    assert became.startswith(line)


def until(terminal, pattern):
    """What is printed, once it matches."""
    printed, deadline = b"", time.monotonic() + SECONDS
    while not (match := re.search(pattern, printed)):
        assert time.monotonic() < deadline, printed
        if select.select([terminal], [], [], 1)[0]:
            printed += os.read(terminal, 4096)
    return match


@pytest.mark.parametrize("line", LINES)
def test_fish_completes(scripts, somewhere, line):
    _, expected = LINES[line]

    found = shell("fish", f"source {scripts}/fish; complete -C '{line}'", cwd=somewhere).split()

    assert [found[0].rpartition(expected[0])[1]] == expected
    assert 1 == len(found)


@pytest.mark.parametrize("line", LINES)
def test_a_tab_in_zsh_completes_the_line(scripts, somewhere, line):
    """From a directory of fpath, as the documents say."""
    _, (expected,) = LINES[line]
    (scripts / "_tonnage").write_text((scripts / "zsh").read_text())

    became = shell("zsh", ZSH, "zsh", scripts, line, cwd=somewhere).strip("\n")

    assert became.rstrip(" ").endswith(expected)
    assert became.startswith(line)


def test_zsh_takes_its_script_from_a_start_file_too(scripts, somewhere):
    text = f"autoload -Uz compinit; compinit -u -D; source {scripts}/zsh; print -r -- $_comps[tonnage]"

    assert "_tonnage" == shell("zsh", text, cwd=somewhere).strip()


def test_the_scripts_hold_every_command(scripts, tonnage):
    for name in ("bash", "zsh", "fish"):
        text = (scripts / name).read_text()
        assert {"#COMMANDS#", "#VALUES#"} & set(text.split()) == set()
        assert all(f"'{command}')" in text or f"'{command}'\n" in text for command in ("estimate", "catalog diff"))


def test_it_is_a_command(tonnage):
    assert "complete -F _tonnage tonnage" in tonnage("completion", "bash").out
    assert 1 == tonnage("completion", "tcsh").code
