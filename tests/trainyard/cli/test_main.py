"""The commands: imported when chosen, with a hint for a misspelt word."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

from trainyard.cli.main import COMMANDS, main

RUN = ["run", "--trace", "sample:tiny", "--cluster", "1x8:v100"]


def test_help_lists_every_command_and_loads_none() -> None:
    code = """\
import sys
from trainyard.cli.main import main
try:
    main(["--help"])
except SystemExit as end:
    heavy = {"numpy", "pandas", "streamlit", "plotly"} & sys.modules.keys()
    sys.exit(f"loaded: {heavy}" if heavy else end.code)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    listed = {line.split()[0] for line in done.stdout.splitlines() if line.startswith("    ")}
    assert listed >= set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    module, function = COMMANDS[name][0].split(":")
    assert callable(getattr(import_module(f"trainyard.cli.{module}"), function))
    with pytest.raises(SystemExit) as end:
        main([name, "--help"])
    assert end.value.code == 0
    assert f"usage: python -m trainyard {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["rum"], "There is no command 'rum'. Did you mean run?"),
        (["zzz"], "There is no command 'zzz'. See python -m trainyard --help."),
        ([*RUN, "--polcy", "fifo"], "Unrecognized arguments: --polcy fifo. Did you mean --policy?"),
        ([*RUN, "--policy", "fifoo"], "There is no policy 'fifoo'. Did you mean fifo?"),
        ([], "The following arguments are required: COMMAND."),
    ],
)
def test_a_misspelt_word_gets_a_hint(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith(sentence)


def test_allocator_is_another_name_of_policy(capsys: pytest.CaptureFixture[str]) -> None:
    printed = []
    for option in ("--policy", "--allocator"):
        assert main([*RUN, option, "fifo", "--seed", "1"]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert "fifo" in printed[0]


def test_list_allocators_is_another_spelling_of_list_policies(
    capsys: pytest.CaptureFixture[str],
) -> None:
    printed = []
    for word in ("policies", "allocators"):
        assert main(["list", word]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert printed[0].startswith("fifo ")


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["swe"], ["sweep"]),
        (["run", "--poli"], ["--policy"]),
        (["run", "--policy", "fi"], ["fifo"]),
        (["run", "--allocator", "gav"], ["gavel"]),
        (["run", "--engine", ""], ["auto", "kernel", "fast"]),
        (["list", "sam"], ["samples"]),
        (["run", "--trace", "no-such"], []),
    ],
)
def test_bash_completes_commands_options_and_choices(
    words: list[str], completed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", "bash"]) == 0
    typed = " ".join(f"'{word}'" for word in ["trainyard", *words])
    script = f"""{capsys.readouterr().out}
COMP_WORDS=({typed}); COMP_CWORD={len(words)}; _trainyard
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == completed


def test_the_scripts_of_zsh_and_fish_name_commands_options_and_choices(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["completion", "zsh"]) == 0
    zsh = capsys.readouterr().out
    assert zsh.startswith("autoload -U +X bashcompinit && bashcompinit\n_trainyard() {")
    assert main(["completion", "fish"]) == 0
    fish = capsys.readouterr().out.splitlines()
    assert (
        "complete -c trainyard -f -n __fish_use_subcommand -a run"
        " -d 'simulate a trace under one or more policies'"
    ) in fish
    assert (
        "complete -c trainyard -n '__fish_seen_subcommand_from run' -l engine -r"
        " -a 'auto kernel fast'"
    ) in fish
