"""The command line, ``python -m trainyard``: one command for each thing that the app does; bad
input ends with exit code 2 and one sentence.

A command's module is imported when the command is chosen, so that `--help` needs no NumPy.
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
    "export": ("export:add_export", "write a what-if as a patch for the scheduler that you run"),
    "backtest": ("backtest:add_backtest", "check a policy against the recorded waits"),
    "tenants": ("tenants:add_tenants", "show what each team held, borrowed and lacked"),
    "replay": ("replay:add_replay", "repeat the published comparison of a paper"),
    "sweep": ("sweep:add_sweep", "run a scenario under many settings"),
    "plan": ("plan:add_plan", "find the fewest nodes that meet a target"),
    "runs": ("runs:add_runs", "find, name, pass on or delete what was run"),
    "compare": ("runs:add_compare", "set two things of the library beside each other"),
    "report": ("report:add_report", "write one HTML file with everything on a scenario"),
    "generate": ("tables:add_generate", "make a look-alike workload, or a sample again"),
    "convert": ("tables:add_convert", "write any trace in the native schema"),
    "recipes": ("recipes:add_recipes", "show, check and try recipes of trace formats"),
    "list": ("listing:add_list", "show what can be chosen"),
    "completion": ("completion:add_completion", "print a completion script for your shell"),
}
"""Command -> module of this package and the function that declares its arguments; what it does."""


class _Parser(argparse.ArgumentParser):
    """Reports a mistake as one sentence, like every other bad input."""

    options: Collection[str] = ()
    """Of the chosen command, for a misspelt one."""

    def error(self, message: str) -> NoReturn:
        sentence = f"{message[:1].upper()}{message[1:].rstrip('.')}."
        if unknown := re.match(r"unrecognized arguments: (--[\w-]+)", message):
            sentence += f" {did_you_mean(unknown.group(1), self.options)}".rstrip()
        raise UsageError(f"{sentence} See {self.prog} --help.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 a run was stopped, 2 bad input, 130
    interrupted.
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
        return _say(*_verdict(error))
    except Exception as error:  # the border of the process: a user never sees a traceback
        if os.environ.get("TRAINYARD_DEBUG"):
            raise
        return _say(
            f"A fault in Trainyard stopped the command ({type(error).__name__}: {error}). Set"
            " TRAINYARD_DEBUG=1 for details and report it.",
            1,
        )
    return 0


def _verdict(error: BaseException) -> tuple[str, int]:
    if isinstance(error, KeyboardInterrupt):
        return str(error) or "Interrupted.", 130
    if isinstance(error, MemoryError):
        return "Memory ran out. Choose fewer jobs, or a shorter window.", 1
    return str(error), 1 if isinstance(
        error, (InfeasiblePlan, ContractError, CommandStoppedError)
    ) else 2


def _pipe_closed() -> int:
    # The reader went away, e.g. `head`; without this Python complains once more when it flushes at
    # exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 141


def _say(sentence: str, code: int) -> int:
    print(" ".join(sentence.split()), file=sys.stderr)
    return code


def make_parser(chosen: str) -> argparse.ArgumentParser:
    """Return the parser of all commands; only the chosen one has its arguments.

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
    if chosen and not chosen.startswith("-") and chosen not in COMMANDS:
        hint = f" {did_you_mean(chosen, COMMANDS)}".rstrip()
        raise UsageError(f"There is no command {chosen!r}.{hint} See {parser.prog} --help.")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, (place, about) in COMMANDS.items():
        command = commands.add_parser(name, help=about, allow_abbrev=False)
        if name == chosen:
            module, function = place.split(":")
            getattr(import_module(f"trainyard.cli.{module}"), function)(command)
            parser.options = command._option_string_actions.keys()
    return parser
