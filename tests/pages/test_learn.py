from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

import trainyard.labs.replays.reading
from tests.pages.conftest import ROOT, FakePool, sound, study_of, texts
from tests.trainyard.labs.replays.replay_cases import SMALL, write
from trainyard.labs.replays.reading import load
from trainyard.labs.replays.report import needed_metrics
from trainyard.labs.replays.run import ReplayRun, run_cell
from trainyard.runs.shared_batches import SharedBatches
from ui.learning import replay_tab as learn


class Still(ReplayRun):
    """A run that goes as far as the test lets it, in this process."""

    def start(self) -> None:
        if not self.recall():
            self._state = "running"

    def take(self, count: int | None = None) -> None:
        for key, cell in list(self._work.items())[:count]:
            self._found[key] = run_cell(
                self._recipes[cell.at, cell.arm].to_json(), cell.seed, needed_metrics(self.replay)
            )

    def finish(self) -> None:
        self.take()
        trainyard.labs.replays.run._write(self._file, self._found)
        self._end("done")

    def fail(self, sentence: str) -> None:
        self._fault = trainyard.labs.replays.run.ReplayError(sentence)
        self._end("failed")

    def cancel(self) -> None:
        self._end("cancelled")


@pytest.fixture
def made(tmp_path: Path, pool: FakePool, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Still]]:
    """A server with two small replays; the runs that were made, in order."""
    folder = tmp_path / "replays"
    folder.mkdir()
    write(folder)
    write(
        folder,
        SMALL.replace('name = "small"', 'name = "two"').replace(
            'title = "Small"', 'title = "Another one"'
        ),
        "two",
    )
    monkeypatch.setattr(trainyard.labs.replays.reading, "FOLDER", folder)
    load.cache_clear()
    every: list[Still] = []

    def make(name: str, seeds: int) -> Still:
        every.append(Still(load(name), seeds, store=pool.store))
        return every[-1]

    shared = SharedBatches(pool.grace)
    monkeypatch.setattr(learn, "shared_replays", lambda: shared)
    monkeypatch.setattr(learn, "new_replay", make)
    yield every
    shared.close()
    load.cache_clear()


def at(address: dict[str, str]) -> AppTest:
    """Open an address of the Learn page, as the first page of a session."""
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=300)
    app.query_params.update({**address, "page": "learn"})
    app.run()
    sound(app)
    return app


def press(app: AppTest, key: str) -> AppTest:
    app.button(key=key).click().run()
    sound(app)
    return app


def has(app: AppTest, key: str) -> bool:
    return any(button.key == key for button in app.button)


def going(made: list[Still]) -> Still:
    return next(run for run in made if run.state == "running")


def test_nothing_runs_by_itself(made: list[Still]) -> None:
    app = at({"tab": "replays"})
    assert app.query_params["replay"] == ["small"] or app.query_params["replay"] == "small"
    assert not app.button(key="run_replay").disabled
    # The file of this replay does not say how long a run takes.
    assert "Not run yet with 4 seeds: 25 simulations." in texts(app)
    assert "Up to twice as fast." in texts(app)
    assert [run.state for run in made] == ["waiting"]
    assert not app.get("plotly_chart")


def test_run_wait_and_see_the_figures(made: list[Still]) -> None:
    app = press(at({"tab": "replays"}), "run_replay")
    assert app.button(key="run_replay").disabled
    going(made).take(3)
    app.run()
    assert "3 of 25 runs" in str(app.get("progress")[0].proto)
    # What is there of the claims is shown at once, in the same table.
    assert "So far 3 of 25 runs" in texts(app)
    assert "up to 50 % shorter" in texts(app)
    assert "? undecided" in texts(app)
    assert not app.get("plotly_chart")
    going(made).finish()
    app.run()
    sound(app)
    assert not has(app, "run_replay")
    assert not has(app, "cancel_replay")
    table = texts(app)
    assert "up to 50 % shorter" in table
    assert "So far" not in table
    assert "✓ in the range" in table
    assert "not counted: range set after results" in table
    assert "2 not counted, because their range was set after the results." in table
    assert "no figure published" in table
    # Published beside simulated, and one curve for every measure of both axes.
    assert len(app.get("plotly_chart")) == 1 + 2 + 1


def test_the_table_says_where_and_one_sided_bands_and_leaves_out_empty_columns(
    made: list[Still], pool: FakePool
) -> None:
    Still(load("small"), 1, store=pool.store).finish()
    bodies = [item.proto.body for item in at({"replay": "small", "seeds": "1"}).get("html")]
    claimed, others = [body for body in bodies if "Measure" in body]
    assert "Verdict" in claimed
    assert "×\u00a00.01 to ×\u00a01.20" in claimed
    assert "at 16 jobs/h · expected from our trial program · 1 seed" in others
    assert "Simulated" in others
    assert [
        word for word in ("Published", "Verdict", "no figure published") if word in others
    ] == []


def test_a_band_from_nothing_up_is_shown_by_its_upper_end(
    made: list[Still], pool: FakePool
) -> None:
    folder = trainyard.labs.replays.reading.FOLDER
    write(
        folder,
        SMALL.replace('name = "small"', 'name = "low"').replace(
            "band = [0.01, 1.2]", "band = [0, 1.2]"
        ),
        "low",
    )
    Still(load("low"), 1, store=pool.store).finish()
    assert "below ×\u00a01.20" in texts(at({"replay": "low", "seeds": "1"}))


def test_what_was_run_is_there_again_on_another_server(made: list[Still], pool: FakePool) -> None:
    before = Still(load("small"), 5, store=pool.store)
    before.finish()
    app = at({"replay": "small", "seeds": "5"})
    assert not has(app, "run_replay")
    assert "✓ in the range" in texts(app)
    assert [run.state for run in made] == ["done"]


def test_what_the_policies_said_stands_under_the_table(made: list[Still], pool: FakePool) -> None:
    before = Still(load("small"), 1, store=pool.store)
    before.take()
    before._found = {
        key: ran._replace(remarks=("<b>CBC</b> solves.",)) for key, ran in before._found.items()
    }
    trainyard.labs.replays.run._write(before._file, before._found)
    shown = texts(at({"replay": "small", "seeds": "1"}))
    assert "Notes on the policies" in shown
    assert "In order: \\<b\\>CBC\\</b\\> solves." in shown
    Still(load("two"), 1, store=pool.store).finish()
    assert "Notes on the policies" not in texts(at({"replay": "two", "seeds": "1"}))


def test_the_slider_shows_the_figures_of_every_policy_at_its_value(
    made: list[Still], pool: FakePool
) -> None:
    Still(load("small"), 1, store=pool.store).finish()
    app = at({"replay": "small", "seeds": "1"})
    assert "Arrival rate 8 jobs/h" in texts(app)
    app.select_slider(key="at/small/per_h").set_value(16.0).run()
    sound(app)
    assert "Arrival rate 16 jobs/h" in texts(app)
    assert "In order" in texts(app)


def test_two_presses_and_two_sessions_are_one_run(made: list[Still]) -> None:
    first = press(at({"tab": "replays"}), "run_replay")
    second = at({"tab": "replays"})
    assert second.button(key="run_replay").disabled
    press(first, "cancel_replay")
    assert going(made).state == "running"
    assert not first.button(key="run_replay").disabled
    press(second, "cancel_replay")
    assert [run.state for run in made] == ["cancelled"]


def test_a_run_that_was_cancelled_shows_what_it_has_and_can_be_run_again(made: list[Still]) -> None:
    app = press(at({"tab": "replays"}), "run_replay")
    going(made).take(13)
    press(app, "cancel_replay")
    assert "Cancelled after 13 of 25 runs" in "".join(info.value for info in app.info)
    assert "Average completion time" in texts(app)
    press(app, "run_replay")
    assert [run.state for run in made] == ["cancelled", "running"]


def test_a_run_that_failed_says_why_and_can_be_run_again(made: list[Still]) -> None:
    app = press(at({"tab": "replays"}), "run_replay")
    going(made).fail("small, arm fifo, seed 0: the machine <caught> fire.")
    app.run()
    sound(app)
    assert [error.value for error in app.error] == [
        "small, arm fifo, seed 0: the machine \\<caught\\> fire."
    ]
    assert not app.button(key="run_replay").disabled


def test_an_unknown_replay_is_one_sentence_and_the_list(made: list[Still]) -> None:
    app = at({"tab": "replays", "replay": "no-such"})
    assert [warning.value for warning in app.warning] == [
        "There is no replay “no-such”. Choose one below."
    ]
    assert not app.error
    assert not has(app, "run_replay")
    choice = app.pills(key="replay")
    choice.set_value("two").run()
    sound(app)
    assert not app.warning
    assert app.query_params["replay"] in ("two", ["two"])
    assert "Another one" in texts(app)


@pytest.mark.parametrize("seeds", ["0", "-1", "7", "many", "9" * 400])
def test_a_number_of_seeds_that_is_not_offered_gives_the_usual_one(
    made: list[Still], seeds: str
) -> None:
    assert "Not run yet with 4 seeds" in texts(at({"replay": "small", "seeds": seeds}))


def test_how_long_it_takes_is_said_before_measured_where_it_can_be(
    made: list[Still], pool: FakePool
) -> None:
    app = at({"tab": "replays"})
    assert ", about" not in texts(app)
    Still(load("small"), 1, store=pool.store).finish()
    app.segmented_control(key="seeds").set_value(1).run()
    app.segmented_control(key="seeds").set_value(20).run()
    sound(app)
    assert re.search(r"Not run yet with 20 seeds: \d+ simulations, about \d", texts(app))


def test_more_seeds_are_another_run_and_stand_in_the_address(made: list[Still]) -> None:
    app = at({"tab": "replays"})
    app.segmented_control(key="seeds").set_value(20).run()
    sound(app)
    assert app.query_params["seeds"] in ("20", ["20"])
    assert "Not run yet with 20 seeds" in texts(app)


def test_another_replay_begins_with_its_own_number_of_seeds(made: list[Still]) -> None:
    app = at({"replay": "small", "seeds": "20"})
    app.pills(key="replay").set_value("two").run()
    sound(app)
    assert "seeds" not in app.query_params
    assert "Another one" in texts(app)


def test_a_replay_becomes_the_scenario(made: list[Still]) -> None:
    app = press(at({"tab": "replays"}), "open_replay")
    study = study_of(app)
    assert [spec.name for spec in study.allocators] == ["fifo", "srtf", "sjf"]
    assert study.base.trace.source == load("small").scenario("fifo").trace.source
    assert study.base.name == "Small"
    assert app.title[0].value == "Compare"


def test_the_command_repeats_what_the_page_ran(made: list[Still]) -> None:
    assert "python -m trainyard replay small --seeds 4 --curves" in [
        code.value for code in at({"tab": "replays"}).code
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("pool")
def test_every_shipped_replay_can_be_opened() -> None:
    for name in trainyard.labs.replays.reading.names():
        app = at({"tab": "replays", "replay": name})
        assert load(name).title in texts(app).replace("\\", "")
        assert len(app.code) >= 2
