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


def test_a_run_loads_no_library_that_it_does_not_use() -> None:
    code = """\
import sys
from trainyard.cli.main import main
assert main(["run", "--trace", "sample:tiny", "--policy", "fifo"]) == 0
unused = {"scipy", "sqlalchemy", "plotly", "sklearn", "streamlit"} & sys.modules.keys()
sys.exit(f"loaded: {unused}" if unused else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


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


@pytest.mark.parametrize(
    ("spelling", "former"),
    [
        ([*RUN, "--policy", "fifo", "--seed", "1"], [*RUN, "--allocator", "fifo", "--seed", "1"]),
        (["list", "policies"], ["list", "allocators"]),
    ],
)
def test_a_former_spelling_prints_the_same(
    spelling: list[str], former: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert (main(spelling), main(former)) == (0, 0)
    printed = capsys.readouterr().out
    assert printed[: len(printed) // 2] == printed[len(printed) // 2 :]
    assert "fifo" in printed


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


@pytest.mark.parametrize(
    ("shell", "line"),
    [
        ("zsh", "autoload -U +X bashcompinit && bashcompinit"),
        ("zsh", "complete -o default -F _trainyard trainyard"),
        (
            "fish",
            "complete -c trainyard -f -n __fish_use_subcommand -a app -d 'open the dashboard"
            " in a browser'",
        ),
        (
            "fish",
            "complete -c trainyard -n '__fish_seen_subcommand_from run' -l engine -r -a 'auto"
            " kernel fast'",
        ),
    ],
)
def test_zsh_and_fish_have_scripts_too(
    shell: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    assert line in capsys.readouterr().out.splitlines()
