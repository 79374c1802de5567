"""The Policies page: everything in one screen, and by keyboard alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from playwright.sync_api import Locator, Page, expect

from sim.params import Spec
from tests.browser.conftest import Scheme
from tests.browser.measuring import low_contrast, misplaced
from tests.browser.waiting import idle
from trainyard.study import catalog
from trainyard.study.study import Study
from trainyard.traces import new_study

pytestmark = [pytest.mark.browser, pytest.mark.slow]
Visit = Callable[..., Page]
COUNT = len(catalog.allocator_choices())
_STOPS = """() => [...document.querySelectorAll('[data-testid=stMain] *')].filter(one =>
  one.tabIndex >= 0 && !one.disabled && one.checkVisibility({visibilityProperty: true})
  && !one.closest('[role=tablist]') || one.matches('[role=tab][tabindex="0"]')).length"""


@pytest.fixture
def sampled() -> Study:
    return new_study.sample_study()


def row(page: Page, name: str) -> Locator:
    return page.locator(f"#policy-{name}")


def compared(page: Page, names: set[str]) -> None:
    """Wait until exactly these are ticked, and the server says so too."""
    expect(page.locator("h1").first).to_have_text(re.compile(f"^{len(names)} of "))
    for one in page.locator(".ty-policies .row").all():
        ticked = one.get_attribute("data-id") in names
        expect(one).to_have_attribute("aria-selected", str(ticked).lower())


def press(page: Page, *keys: str) -> int:
    for key in keys:
        page.keyboard.press(key)
    return len(keys)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_policies_and_the_detail_are_in_one_screen(
    sample_app: str, sampled: Study, visit: Visit, scheme: Scheme
) -> None:
    page = visit(f"{sample_app}/policies?s={sampled.pack()}", color_scheme=scheme)
    page.set_viewport_size({"width": 1440, "height": 1000})
    expect(page.locator(".ty-policies .row")).to_have_count(COUNT)
    expect(row(page, "srtf")).to_contain_text(re.compile(r"\d h−\d+\s%"))
    idle(page)
    for part in (page.locator(".ty-policies .list"), page.locator(".st-key-policy_detail")):
        box = part.bounding_box()
        assert box is not None
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= 1000
    for line in page.locator(".ty-policies .row").all():
        box = line.bounding_box()
        assert box is not None
        assert box["height"] == 25
    main = page.get_by_test_id("stMain")
    assert main.evaluate("node => node.scrollHeight") <= 1000
    row(page, "gavel").click()
    expect(page.locator(".st-key-policy_detail h3")).to_have_text("Gavel")
    expect(row(page, "gavel")).to_be_in_viewport(ratio=1)
    assert len(re.findall("[A-Za-z]{2,}", main.inner_text())) <= 500
    assert page.evaluate(_STOPS) <= 35
    assert page.locator("[data-testid=stBaseButton-primary]").count() <= 1
    assert page.get_by_test_id("stSidebar").count() == 0
    assert low_contrast(page) == []


def test_six_policies_are_chosen_in_twelve_key_presses(
    sample_app: str, sampled: Study, visit: Visit
) -> None:
    page = visit(f"{sample_app}/policies?s={replace(sampled, allocators=(Spec('fifo'),)).pack()}")
    expect(page.locator(".ty-policies .row")).to_have_count(COUNT)
    page.locator(".ty-policies .list").focus()
    press(page, "Home")
    ids = page.locator(".ty-policies .row").evaluate_all("rows => rows.map(row => row.dataset.id)")
    assert press(page, *["ArrowDown", "Space"] * 6) <= 12
    compared(page, {"fifo", *ids[1:7]})
    # Nothing is lost, though all were pressed while the server was still busy with the first; and
    # the focus stays where it was.
    idle(page)
    assert page.evaluate("document.activeElement.className") == "list"
    page.reload()
    compared(page, {"fifo", *ids[1:7]})


def test_the_list_works_with_keys_alone(sample_app: str, sampled: Study, visit: Visit) -> None:
    page = visit(f"{sample_app}/policies?s={sampled.pack()}")
    expect(page.locator(".ty-policies .row")).to_have_count(COUNT)
    idle(page)
    press(page, "/")
    page.keyboard.type("gav")
    expect(page.locator(".ty-policies .row")).to_have_count(1)
    press(page, "ArrowDown", "Enter")
    detail = page.locator(".st-key-policy_detail")
    expect(detail.locator("h3")).to_have_text("Gavel")
    expect(page).to_have_url(re.compile("policy=gavel"))
    press(page, "Space")
    expect(page.locator("h1").first).to_have_text(re.compile("^5 of "))
    expect(detail.get_by_role("button", name="Remove from comparison")).to_be_visible()
    press(page, "/", "Escape")
    expect(page.locator(".ty-policies .row")).to_have_count(COUNT)
    press(page, "End")
    expect(page.locator(".ty-policies .row").last).to_have_class(re.compile(r"\bat\b"))
    before = page.locator("h1").inner_text()
    press(page, *["ArrowUp"] * 4, "Space")
    expect(page.locator(".ty-policies .said")).to_contain_text("jobs need parameter servers")
    expect(page.locator("h1").first).to_have_text(before)
    page.reload()
    expect(detail.locator("h3")).to_have_text("Gavel")


def test_one_click_lets_jobs_change_size_and_one_more_restores(
    sample_app: str, sampled: Study, visit: Visit
) -> None:
    page = visit(f"{sample_app}/policies?s={sampled.pack()}")
    barred = page.locator(".ty-policies .barred")
    expect(barred).to_have_count(6)
    page.get_by_role("button", name="Let jobs change size").click()
    expect(barred).to_have_count(3)
    page.get_by_role("button", name="Add parameter servers").click()
    expect(barred).to_have_count(0)
    row(page, "optimus").locator(".tick").click()
    expect(row(page, "optimus")).to_have_attribute("aria-selected", "true")
    # A tick shows the detail as well.
    expect(page.locator(".st-key-policy_detail")).to_contain_text("Optimus")
    page.get_by_role("button", name="Keep job sizes").click()
    expect(barred).to_have_count(6)
    expect(row(page, "optimus")).to_contain_text("jobs need parameter servers")
    row(page, "optimus").locator(".tick").click()
    compared(page, {spec.name for spec in sampled.allocators})


def test_a_variant_has_settings_in_words_and_can_be_deleted(
    sample_app: str, sampled: Study, visit: Visit
) -> None:
    page = visit(f"{sample_app}/policies?s={sampled.pack()}")
    detail = page.locator(".st-key-policy_detail")
    row(page, "gavel").click()
    expect(detail.locator("h3")).to_have_text("Gavel")
    detail.get_by_role("button", name="Add a variant").click()
    expect(row(page, "gavel-2")).to_have_attribute("aria-selected", "true")
    field = detail.get_by_test_id("stSelectbox").filter(has_text="Objective")
    field.get_by_role("combobox").click()
    page.get_by_role("option", name="Makespan").click()
    expect(row(page, "gavel-2")).to_contain_text("objective makespan")
    expect(detail.locator("h3")).to_contain_text("objective makespan")
    detail.get_by_role("button", name="Delete").click()
    expect(row(page, "gavel-2")).to_have_count(0)
    expect(detail.locator("h3")).to_have_text("Gavel")


def test_forty_policies_scroll_with_the_page(sample_app: str, sampled: Study, visit: Visit) -> None:
    more = [Spec.of("las", thresholds=(float(at), 1e6)) for at in range(1, 23)]
    study = replace(sampled, allocators=(*sampled.allocators, *more))
    page = visit(f"{sample_app}/policies?s={study.pack()}")
    page.set_viewport_size({"width": 1440, "height": 900})
    expect(page.locator(".ty-policies .row")).to_have_count(COUNT + 21)
    idle(page)
    page.locator(".ty-policies .list").focus()
    press(page, "End")
    expect(page.locator(".ty-policies .row").last).to_be_in_viewport()


@pytest.mark.parametrize("width", [800, 390])
def test_small_windows_have_the_detail_below(
    sample_app: str, sampled: Study, visit: Visit, width: int
) -> None:
    page = visit(f"{sample_app}/policies?s={sampled.pack()}", width=width)
    expect(page.locator(".ty-policies .row")).to_have_count(COUNT)
    idle(page)
    assert misplaced(page) == []
    row(page, "gavel").click()
    detail = page.locator(".st-key-policy_detail")
    expect(detail.locator("h3")).to_have_text("Gavel")
    expect(detail.locator("h3")).to_be_in_viewport()
    # Nothing stands between the head and the list.
    gap = page.evaluate(
        "() => document.querySelector('.ty-policies').getBoundingClientRect().top"
        " - document.querySelector('h1').getBoundingClientRect().top"
    )
    assert gap <= 300
    titles = page.locator(".ty-policies .row b").all()
    assert all((box := title.bounding_box()) and box["width"] >= 100 for title in titles)
