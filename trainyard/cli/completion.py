"""The ``completion`` command: a script that completes commands, options and choices in a shell."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Final

from allocators import REGISTRY
from trainyard.cli.main import COMMANDS, make_parser

_BASH: Final = """\
_trainyard() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" words=""
    case "${{COMP_WORDS[1]}} $before" in
{choices}
        *) case "${{COMP_WORDS[1]}}" in
{options}
        esac ;;
    esac
    [ "$COMP_CWORD" -eq 1 ] && words="{commands}"
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _trainyard trainyard
"""
_ZSH: Final = "autoload -U +X bashcompinit && bashcompinit\n" + _BASH


def add_completion(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``python -m trainyard completion``."""
    parser.set_defaults(command=_write_script)
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell you use")


def _write_script(args: argparse.Namespace) -> None:
    """Print the completion script of a shell."""
    if args.shell == "fish":
        print("\n".join(_fish_lines()))
        return
    options, choices = [], []
    for name in COMMANDS:
        words: list[str] = []
        for action, values in _arguments(name):
            words += action.option_strings or values
            if action.option_strings and values:
                patterns = "|".join(f'"{name} {option}"' for option in action.option_strings)
                choices.append(f'        {patterns}) words="{" ".join(values)}" ;;')
        options.append(f'            {name}) words="{" ".join(words)}" ;;')
    script = _ZSH if args.shell == "zsh" else _BASH
    filled = script.format(
        choices="\n".join(choices), options="\n".join(options), commands=" ".join(COMMANDS)
    )
    print(filled, end="")


def _arguments(command: str) -> Iterator[tuple[argparse.Action, list[str]]]:
    """Yield the arguments of a command with the values they can take; [] = any value."""
    commands = next(
        action for action in make_parser(command)._actions if isinstance(action.choices, dict)
    )
    assert isinstance(commands.choices, dict), "the parser has commands"
    for action in commands.choices[command]._actions:
        is_policy = "--policy" in action.option_strings
        yield action, [*REGISTRY] if is_policy else [str(value) for value in action.choices or ()]


def _fish_lines() -> Iterator[str]:
    """Yield the completions of fish, one for each command, option and list of choices."""
    for name, (_, about) in COMMANDS.items():
        yield f"complete -c trainyard -f -n __fish_use_subcommand -a {name} -d '{about}'"
        seen = f"-n '__fish_seen_subcommand_from {name}'"
        for action, values in _arguments(name):
            flags = " ".join(
                f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
                for option in action.option_strings
            )
            takes = "" if action.nargs == 0 else "-r "
            listed = f"-a '{' '.join(values)}' " if values else ""
            yield f"complete -c trainyard {seen} {flags} {takes if flags else ''}{listed}".rstrip()
