"""The command line, ``python -m trainyard``: its commands, parser and exit codes.

A command's module is imported when the command is chosen, so `--help` needs no NumPy.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import warnings
from collections.abc import Collection, Sequence
from importlib import import_module
from typing import Final, NoReturn

from sim.errors import ContractError, InfeasiblePlan, TrainyardError
from sim.params import did_you_mean
from trainyard.cli.errors import CommandStoppedError, UsageError

COMMANDS: Final = {
    "app": ("app:add_app", "open the dashboard in a browser"),
    "run": ("run:add_run", "simulate a trace under one or more policies"),
    "export": ("export:add_export", "write a what-if as a patch for your scheduler"),
    "backtest": ("backtest:add_backtest", "check a policy against the recorded waits"),
    "tenants": ("tenants:add_tenants", "show GPUs each tenant used, borrowed and lacked"),
    "replay": ("replay:add_replay", "repeat the published comparison of a paper"),
    "sweep": ("sweep:add_sweep", "run a scenario under many settings"),
    "plan": ("plan:add_plan", "find the fewest nodes that meet a target"),
    "runs": ("runs:add_runs", "list, name, export or delete stored runs"),
    "compare": ("runs:add_compare", "compare two items of the library"),
    "report": ("report:add_report", "write all results of a scenario as one HTML file"),
    "generate": ("convert:add_generate", "generate a similar workload or a sample"),
    "convert": ("convert:add_convert", "write any trace in the native schema"),
    "recipes": ("recipes:add_recipes", "show, check and try recipes for trace formats"),
    "list": ("list_choices:add_list", "list policies, formats, samples and other choices"),
    "completion": ("completion:add_completion", "print a completion script for your shell"),
}
"""Command -> (module:function that declares its arguments, help text)."""


class _Parser(argparse.ArgumentParser):
    """Raises a usage error as one sentence instead of printing the usage."""

    options: Collection[str] = ()
    """Options of the chosen command, to suggest one for a misspelling."""

    def error(self, message: str) -> NoReturn:
        """Raise the message as a `UsageError`, with a suggestion for an unknown option."""
        sentence = f"{message[:1].upper()}{message[1:].rstrip('.')}."
        if unknown := re.match(r"unrecognized arguments: (--[\w-]+)", message):
            sentence += f" {did_you_mean(unknown.group(1), self.options)}".rstrip()
        raise UsageError(f"{sentence} See {self.prog} --help.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; errors are printed as one line.

    0 = done, 1 = a run stopped, 2 = bad input, 130 = interrupted, 141 = output pipe closed.
    """
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
    try:
        given = sys.argv[1:] if arguments is None else list(arguments)
        args = make_parser(given[0] if given else "").parse_args(given)
        args.command(args)
        sys.stdout.flush()
    except BrokenPipeError:
        return _pipe_closed()
    except (TrainyardError, KeyboardInterrupt, MemoryError) as error:
        return _print_error(*_error_message(error))
    except Exception as error:  # outermost handler: a user never sees a traceback
        if os.environ.get("TRAINYARD_DEBUG"):
            raise
        return _print_error(
            f"A fault in Trainyard stopped the command ({type(error).__name__}: {error}). Set"
            " TRAINYARD_DEBUG=1 for details and report it.",
            1,
        )
    return 0


def _error_message(error: BaseException) -> tuple[str, int]:
    """Return the message of an error, and the exit code: 1, 2 or 130."""
    if isinstance(error, KeyboardInterrupt):
        return str(error) or "Interrupted.", 130
    if isinstance(error, MemoryError):
        return "Memory ran out. Choose fewer jobs, or a shorter window.", 1
    return str(error), 1 if isinstance(
        error, (InfeasiblePlan, ContractError, CommandStoppedError)
    ) else 2


def _pipe_closed() -> int:
    """Return exit code 141, and silence the flush at exit after the reader closed the pipe."""
    # Without this Python reports the closed pipe, e.g. of `head`, again when it flushes at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 141


def _print_error(sentence: str, code: int) -> int:
    """Print a message to standard error on one line; return the exit code."""
    print(" ".join(sentence.split()), file=sys.stderr)
    return code


def make_parser(chosen_command: str) -> argparse.ArgumentParser:
    """Return the parser of all commands, with the arguments of the chosen one.

    Raises
    ------
    UsageError
        If there is no such command.
    """
    parser = _Parser(
        prog="python -m trainyard",
        description="What would another scheduler have done?",
        allow_abbrev=False,
    )
    if chosen_command and not chosen_command.startswith("-") and chosen_command not in COMMANDS:
        hint = f" {did_you_mean(chosen_command, COMMANDS)}".rstrip()
        raise UsageError(f"There is no command {chosen_command!r}.{hint} See {parser.prog} --help.")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, (place, about) in COMMANDS.items():
        command = commands.add_parser(name, help=about, allow_abbrev=False)
        if name == chosen_command:
            module, function = place.split(":")
            getattr(import_module(f"trainyard.cli.{module}"), function)(command)
            parser.options = command._option_string_actions.keys()
    return parser
