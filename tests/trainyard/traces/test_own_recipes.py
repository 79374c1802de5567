from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest

from jobtraces import ReadOptions, peek, read, recipes
from sim.errors import TraceError
from tests.jobtraces.readers.test_unknown import SPELLINGS
from trainyard.cli.main import main
from trainyard.traces import own_recipes
from trainyard.traces.own_recipes import (
    OwnRecipe,
    check_own_recipe,
    parse_own_recipe,
    recipe_of_import,
)

TEXT = """id;Eingereicht am;Dauer;Karten;Zustand
1;03.04.2026 10:00;60;2;fertig
2;04.05.2026 11:30;30;1;zurückgestellt
"""
ANSWERS = {
    "date_order": "day",
    "duration_unit": "min",
    "zone": "Europe/Berlin",
    "status.zurückgestellt": "cancelled",
}
EXPRESSIONS = """name = "ours"
title = "Ours"
[recognise]
columns = ["who", "when", "many", "seconds"]
[columns]
submit_time_s = "num(\\"when\\")"
num_gpus = "num(many)"
duration_s = "num(seconds)"
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRAINYARD_STORE", str(tmp_path / "home"))
    return tmp_path


def questions(data: bytes) -> dict[str, str]:
    asked = {one.id for one in read(data).questions}
    return {name: answer for name, answer in ANSWERS.items() if name in asked}


def kept(data: bytes, **choices: object) -> OwnRecipe:
    answers = questions(data)
    assert answers
    chosen = {"answers": answers, **choices}
    found = read(data, options=ReadOptions(**chosen))  # type: ignore[arg-type]
    assert not found.questions
    return recipe_of_import("Export März.csv", found, chosen, peek(data).fingerprint)


def test_answers_become_a_recipe_by_which_the_next_file_is_read_without_a_question() -> None:
    before = datetime.now(UTC)
    recipe = kept(TEXT.encode())
    days = {f"{now.day} {now:%B} {now.year}" for now in (before, datetime.now(UTC))}
    later = TEXT.replace("60;2", "15;4").encode()
    assert (recipe.name, recipe.fmt) == ("export-märz".replace("ä", "-"), "table")
    assert peek(later).fingerprint == recipe.fingerprint
    assert parse_own_recipe(recipe.text, "again") == recipe
    found = read(later, fmt=recipe.fmt, options=ReadOptions(**recipe.choices))
    assert not found.questions
    assert found.trace.frame["duration_s"].tolist() == [900, 1800]
    assert found.trace.frame["status"].tolist() == ["completed", "cancelled"]
    assert recipe.label in {f"your recipe “export-m-rz” of {day}" for day in days}


def test_answers_about_single_rows_are_not_for_the_next_file() -> None:
    header = "job_id,submit_time_s,num_gpus,duration_s\n"
    rows = "".join(f"j{at},{at * 60},1,{100 + at}\n" for at in range(60))
    data = (header + rows + "huge,5,512,900000\n").encode()
    chosen = {"answers": {"work": "leave_out"}, "cpu_jobs": "keep", "duration_unit": "s"}
    found = read(data, options=ReadOptions(**chosen))  # type: ignore[arg-type]
    assert found.used == 60
    recipe = recipe_of_import("t.csv", found, chosen, peek(data).fingerprint)
    assert "answers" not in recipe.choices
    assert recipe.choices["duration_unit"] == "s"
    assert "cpu_jobs" not in recipe.choices


def test_the_fingerprint_is_of_names_not_of_rows_or_their_order() -> None:
    mark = peek(b"a,b,submit,gpus\n1,2,3,4\n5,6,7,8\n").fingerprint
    assert len(mark) == 12
    assert peek(b"gpus;SUBMIT;b;a\n9;9;9;9\n8;8;8;8\n").fingerprint == mark
    assert peek(b"a,b,submit,cards\n1,2,3,4\n5,6,7,8\n").fingerprint != mark
    pods = b'{"items": [{"kind": "Pod", "spec": {"x": 1}, "metadata": {"name": "a"}}]}'
    assert peek(pods).fingerprint == peek(pods.replace(b'"a"', b'"b"')).fingerprint != mark
    swf = b" ".join([b"1"] * 18) + b"\n"
    assert peek(swf + swf).fingerprint == ""  # no names


def test_expressions_of_the_user_get_the_fingerprint_too(monkeypatch: pytest.MonkeyPatch) -> None:
    # In this process: that another one reads is shown where the walls are tested.
    monkeypatch.setattr(recipes, "run_limited", lambda work, *args: work(*args))
    data = b"who,when,many,seconds\na,0,1,60\nb,5,2,90\n"
    found = read(data, options=ReadOptions(recipe=EXPRESSIONS))
    recipe = recipe_of_import("x.csv", found, {"recipe": EXPRESSIONS}, peek(data).fingerprint)
    again = recipe_of_import("x.csv", found, recipe.choices, recipe.fingerprint)
    assert again == recipe
    assert again.text.count("fingerprint") == again.text.count("saved") == 1
    assert read(data, options=ReadOptions(**again.choices)).used == 2
    assert check_own_recipe(again.text, "x").fingerprint == peek(data).fingerprint


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[read", "is not valid TOML"),
        ('[read]\nformat = "table"\n', "name must be a non-empty text"),
        ('name = "a"\ntitle = "b"\n[read]\nformat = "tabel"\n', "unknown format 'tabel'"),
        ('name = "a"\ntitle = "b"\n[read]\nformt = "table"\n', "Did you mean format?"),
        ('name = "a"\n[read]\nformat = "table"\nzone = "Mars"\n', "time zone 'Mars'"),
        ('name = "a"\n[read]\nformat = "table"\nanswers = 3\n', "answers must be a table"),
        ('saved = "soon"\n[read]\n', "saved must be a date"),
        ('fingerprint = "XY"\n[read]\n', "twelve hexadecimal digits"),
        ("x" * 65_000, "64,000 characters"),
    ],
)
def test_faulty_recipes(text: str, told: str) -> None:
    with pytest.raises(TraceError, match=told) as caught:
        parse_own_recipe(text, "mine.toml")
    assert str(caught.value).startswith("mine.toml")


def test_names_with_every_sign_are_written_and_read() -> None:
    column = 'a "b" \\ c\x7f\t=#[]'
    found = read(b"submit_time_s,num_gpus,duration_s\n0,1,60\n")
    recipe = recipe_of_import("x", found, {"mapping": {"user": column}}, "0" * 12)
    assert recipe.choices["mapping"]["user"] == column


def test_the_command_line_keeps_a_recipe_and_reads_by_it(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, out = home / "march.csv", home / "april.csv", home / "out.csv"
    first.write_text(TEXT, encoding="utf-8")
    second.write_text(TEXT.replace("60;2", "15;4"), encoding="utf-8")
    answers = [
        word
        for name, answer in questions(TEXT.encode()).items()
        for word in ("--answer", f"{name}={answer}")
    ]

    def convert(file: Path, *more: str) -> int:
        return main(["convert", str(file), "--out", str(out), *more])

    assert convert(first) == 2
    assert convert(first, *answers, "--save-recipe", "slurm-export") == 0
    assert (home / "home" / "recipes" / "slurm-export.toml").is_file()
    capsys.readouterr()
    assert convert(second) == 0
    told = capsys.readouterr().err
    assert "Read by your recipe “slurm-export” of " in told
    assert pd.read_csv(out)["duration_s"].tolist() == [900, 1800]
    # What is given besides holds, and another format reads without it.
    assert convert(second, "--answer", "duration_unit=s") == 0
    assert pd.read_csv(out)["duration_s"].tolist() == [15, 30]
    capsys.readouterr()
    assert convert(second, "--format", "table") == 2
    assert "Read by your recipe" not in capsys.readouterr().err
    assert main(["recipes", "list"]) == 0
    assert "mine/slurm-export" in capsys.readouterr().out
    assert main(["run", "--trace", str(second), "--allocator", "fifo"]) == 0


def test_a_recipe_can_be_kept_anywhere_and_passed_on(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out, recipe = home / "x.csv", home / "out.csv", home / "shared.toml"
    data.write_text(TEXT, encoding="utf-8")
    assert (
        main(["convert", str(data), "--out", str(out), "--yes", "--save-recipe", str(recipe)]) == 0
    )
    assert main(["recipes", "check", str(recipe)]) == 0
    assert main(["recipes", "try", str(recipe), str(data)]) == 0
    assert main(["convert", str(data), "--out", str(out), "--yes", "--recipe", str(recipe)]) == 0
    capsys.readouterr()
    for place in ("shared.txt", str(home / "x.csv" / "r.toml")):
        assert main(["convert", str(data), "--out", str(out), "--yes", "--save-recipe", place]) == 2
        assert "recipe" in capsys.readouterr().err
    assert main(["convert", "sample:tiny", "--out", str(out), "--save-recipe", str(recipe)]) == 2
    assert "saves how one file was read" in capsys.readouterr().err


def test_a_folder_with_a_faulty_recipe_still_reads(home: Path) -> None:
    folder = own_recipes.recipes_folder()
    folder.mkdir(parents=True)
    (folder / "bad.toml").write_text("[", encoding="utf-8")
    (folder / "good.toml").write_text(kept(TEXT.encode()).text, encoding="utf-8")
    data = home / "x.csv"
    data.write_text(TEXT, encoding="utf-8")
    found = own_recipes.recipe_for_file(data)
    assert found is not None
    assert found.fmt == "table"


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_recipe_reads_its_own_file_as_it_was_read(spelling: str) -> None:
    content, answers = SPELLINGS[spelling]
    data = content.encode() if isinstance(content, str) else content
    chosen = {"answers": {key: answer for key, answer in answers.items() if answer}}
    found = read(data, options=ReadOptions(**chosen))
    recipe = recipe_of_import("x", found, chosen, peek(data).fingerprint)
    again = read(data, fmt=recipe.fmt, options=ReadOptions(**recipe.choices))
    assert again.trace.digest == found.trace.digest
    assert recipe_of_import("x", again, recipe.choices, recipe.fingerprint).reads_like(recipe)
