"""Pages look the same everywhere, in light and dark."""

import re

from tests.reports.pages import checked

from penstock.reports.style import SERIES, STYLE, fragment, page


def test_every_colour_that_is_used_is_there_in_light_and_in_dark():
    light, dark = STYLE.split("prefers-color-scheme:dark", 1)
    for name in {
        *re.findall(r"var\(--(\w+)\)", STYLE),
        *(f"c{number}" for number in range(SERIES + 1)),
    }:
        assert f"--{name}:#" in light
        assert f"--{name}:#" in dark.split("color-scheme:dark}")[0]


def test_a_page_is_made_for_phones_too_and_a_part_styles_nothing_around_it():
    whole = page("title", "<p>body</p>")
    assert checked(whole) == "body"
    assert 'name="viewport"' in whole
    rules = re.findall(r"(?:^|})\s*([^{}@]+){", STYLE.replace("\n", ""))
    assert rules
    assert all(part.strip().startswith(".pst") for rule in rules for part in rule.split(","))
    assert checked(fragment("<p>body</p>")) == "body"
