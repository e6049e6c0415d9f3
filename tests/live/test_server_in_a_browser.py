"""The page in a real browser, Debian's Chromium, while a real training runs and others have ended."""

import os
import shutil
import signal
from urllib.parse import urlsplit

import pytest

from live.run_files import SECONDS, process, until

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        BROWSER is None or DRIVER is None,
        reason="there is no chromium with its driver (make browser); test_server.py asks the server without one",
    ),
]
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1280,1000",
]
ELSEWHERE = "somewhere.example"

TRAINING = """
import time
import numpy as np
import penstock as ps

def slow(x, y):
    time.sleep(2e-3)
    return x, y

rows = np.random.default_rng(0).random((20_000, 8), dtype="f4")
ds = ps.from_arrays((rows, rows @ np.arange(8, dtype="f4"))).shuffle(seed=0).map(slow).batch(32)
ds = ds.with_options(watch=True, memory="64MB")
weights = np.zeros(8, "f4")
for epoch in range(100):
    for x, y in ds:
        weights -= 0.1 * x.T @ (x @ weights - y) / len(y)
"""
LOOP = """
import sys
import numpy as np
import penstock as ps
ds = ps.from_arrays(np.zeros((1000, 4), "f4")).batch(10).with_options(watch=True)
for number, batch in enumerate(ds):
    if number == 50 and sys.argv[1] == "killed":
        print("there", flush=True)
        sys.stdin.readline()
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A training that goes on, a loop that ended, one that was killed; and the address that the first one prints."""
    cache = {"XDG_CACHE_HOME": str(tmp_path_factory.mktemp("runs"))}
    started = [
        process(TRAINING, **cache),
        process(LOOP, "killed", **cache),
        process(LOOP, "ended", **cache),
    ]
    training, killed, ended = started
    try:
        ended.communicate(timeout=SECONDS)
        assert killed.stdout.readline() == "there\n"
        killed.send_signal(signal.SIGKILL)
        lines = iter(training.stderr.readline, "")
        told = next(line for line in lines if line.startswith("penstock: live page at "))
        yield {"url": told.split()[-1], "training": training, "killed": killed, "ended": ended}
        # It was ended by the last test, or is ended below: if it failed by itself, this says why.
        assert training.poll() in (None, -signal.SIGTERM), training.communicate()
    finally:
        for one in started:
            one.kill()
            one.communicate()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """One browser for all tests; what its console says is kept."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    profile = tmp_path_factory.mktemp("profile")
    for flag in (
        *FLAGS,
        f"--user-data-dir={profile}",
        f"--host-resolver-rules=MAP {ELSEWHERE} 127.0.0.1",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    one = webdriver.Chrome(options=options, service=Service(DRIVER))
    one.set_page_load_timeout(SECONDS)
    try:
        yield one
    finally:
        one.quit()


@pytest.fixture
def page(browser, runs):
    """The page of the training, as it is when its first figures are there; its console says nothing."""
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get(runs["url"])
    until(lambda: words(browser, "#done").startswith("epoch "))
    yield browser
    assert browser.get_log("browser") == []


def words(browser, selector):
    return browser.find_element("css selector", selector).text


def number_of(browser):
    """How many batches the page says were read, over all epochs: the epoch, and the batches in it."""
    epoch, rest = words(browser, "#done").removeprefix("epoch ").split(": ")
    return int(epoch), int(rest.split()[0].replace(",", ""))


def choose(browser, run):
    """Show a run of a process."""
    for button in browser.find_elements("css selector", "nav button"):
        if button.find_element("class name", "chain").text.startswith(f"{run.pid}-1:"):
            button.click()
            until(lambda: f"process {run.pid}," in words(browser, "#where"))
            return
    raise AssertionError(f"there is no run of process {run.pid}")


def shown_as(browser, *, width, dark):
    color = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [color]})
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def test_it_shows_the_training_and_goes_on_with_it(page, runs):
    assert words(page, "#status") == "running"
    assert f"process {runs['training'].pid}," in words(page, "#where")
    assert words(page, "#link") == "live"
    first = number_of(page)
    until(lambda: number_of(page) > first)
    assert "left" in words(page, "#left")
    assert "of 64 MB" in words(page, "#memory")
    assert page.title.endswith("- penstock")


def test_it_names_the_slow_map_as_the_bottleneck_and_says_what_to_do(page):
    until(lambda: "map(slow) is the bottleneck" in words(page, "#say"))
    assert "call it on batches (.batch(n).map(f))" in words(page, "#say")
    assert words(page, ".stage.slowest .call") == "map(slow)"
    assert words(page, ".stage.slowest .mark") == "bottleneck"
    calls = [one.text for one in page.find_elements("css selector", ".stage .call")]
    assert calls[1:] == ["shuffle(seed=0)", "map(slow)", "batch(32)", "your loop"]
    waiting = page.find_element("css selector", "#waiting svg")
    until(lambda: int(waiting.get_attribute("aria-valuenow")) > 50)
    assert "map(slow) on threads" in words(page, "#decisions")


def test_it_shows_several_runs_and_how_each_stands(page, runs):
    lines = [one.text.split("\n") for one in page.find_elements("css selector", "nav button")]
    assert sorted(line[-2] for line in lines) == ["ended", "killed", "running"]
    choose(page, runs["ended"])
    assert words(page, "#status") == "ended"
    assert words(page, "#done") == "epoch 0: 100 of 100 batches"
    assert words(page, "#epochs td") == "0"
    choose(page, runs["killed"])
    assert words(page, "#status") == "killed"
    assert "Its process is gone" in words(page, "#error")
    choose(page, runs["training"])
    assert words(page, "#status") == "running"
    assert not page.find_element("id", "error").is_displayed()


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_the_screen_and_can_be_read_in_light_and_dark(page, width, dark):
    shown_as(page, width=width, dark=dark)
    until(lambda: page.execute_script("return innerWidth") == width)
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    assert page.execute_script(CONTRASTS) == []


# The texts whose colour is too near to that of what they stand on, by the rule of WCAG (4.5 to 1).
CONTRASTS = """
const numbers = (color) => color.match(/[\\d.]+/g).map(Number);
const linear = (one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
const light = (color) => {
  const [r, g, b] = numbers(color).map((one) => linear(one / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (node) => {
  for (let one = node; one; one = one.parentElement) {
    const color = getComputedStyle(one).backgroundColor;
    if (numbers(color)[3] !== 0) return color;
  }
  return "rgb(255, 255, 255)";
};
const hasText = (node) => [...node.childNodes].some((one) => one.nodeType === 3 && one.data.trim());
return [...document.querySelectorAll("body *")]
  .filter((node) => hasText(node) && node.checkVisibility() && !node.closest("svg"))
  .map((node) => {
    const both = [light(getComputedStyle(node).color), light(behind(node))];
    const contrast = (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05);
    return [node.className, node.textContent.slice(0, 30), contrast];
  })
  .filter(([, , contrast]) => contrast < 4.5);
"""


def test_nothing_jumps_while_the_numbers_change(page):
    shown_as(page, width=1280, dark=False)
    page.execute_script(
        "new PerformanceObserver((list) => list.getEntries().forEach("
        "(one) => { window.jumps += one.value; })).observe({type: 'layout-shift'});"
    )

    def is_calm():
        page.execute_script("window.jumps = 0")
        for _ in range(3):
            first = words(page, "#time")
            until(lambda first=first: words(page, "#time") != first)
        return page.execute_script("return window.jumps") < 0.02

    # A decision or another bottleneck may come meanwhile, and takes its room: then not in the next three updates.
    until(is_calm)


def test_everything_can_be_reached_and_is_named_without_seeing_it(page):
    unnamed = page.execute_script(
        "return [...document.querySelectorAll('svg[role], [role=progressbar], nav, button, img')]"
        ".filter((one) => !one.hasAttribute('alt') && !one.ariaLabel && !one.textContent.trim())"
        ".map((one) => one.outerHTML.slice(0, 80))"
    )
    assert unnamed == []
    current = page.find_elements("css selector", "nav button[aria-current=true]")
    assert len(current) == 1
    bar = page.find_element("id", "progress")
    assert 0 <= int(bar.get_attribute("aria-valuenow")) <= 100


def test_without_the_token_or_by_another_name_there_is_nothing(browser, runs):
    parts = urlsplit(runs["url"])
    refused = {
        f"http://127.0.0.1:{parts.port}/": "penstock: the address has no token",
        f"http://127.0.0.1:{parts.port}/{'x' * 32}/": "penstock: the address has no token",
        f"http://{ELSEWHERE}:{parts.port}{parts.path}": "penstock: this is 127.0.0.1 and no other host",
    }
    for address, answer in refused.items():
        browser.get(address)
        assert words(browser, "body").startswith(answer)


def test_it_tells_when_the_process_that_serves_it_is_gone(page, runs):
    os.kill(runs["training"].pid, signal.SIGTERM)
    until(lambda: "not connected" in words(page, "#link"))
    assert "penstock watch" in words(page, "#link")
    page.get("about:blank")
    # The browser itself tells of a connection that was refused; the page says nothing else.
    assert {one["source"] for one in page.get_log("browser")} == {"network"}
