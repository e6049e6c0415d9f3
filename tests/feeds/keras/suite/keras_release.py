"""What is missing is named: Keras, or its backend; and a Keras that was never run is used with a warning."""

import subprocess
import sys
import warnings

import numpy as np
import pytest

import penstock as ps
from feeds.keras.suite.models import BACKEND
from penstock.feeds.keras import release

NEWER = ["3.16.0", "3.16.0.dev2027010100", "3.17.2", "4.0", "unheard-of"]


@pytest.mark.parametrize("version", NEWER)
def test_a_release_that_was_never_run_is_warned_of_once(version, monkeypatch):
    monkeypatch.setattr(release, "_warned", set())
    with pytest.warns(ps.PenstockWarning, match=rf"Keras {version} is newer .*3\.7 to 3\.15"):
        release.warn_of_unknown_release(version)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        release.warn_of_unknown_release(version)


@pytest.mark.parametrize("version", ["3.7.0", "3.10", "3.15.1", "3.16.0.dev2026102704"])
def test_releases_that_were_run_are_used_without_a_word(version):
    release.warn_of_unknown_release(version)


def test_a_feed_of_the_keras_that_is_installed_warns_of_nothing_or_of_its_release():
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        ps.from_arrays(np.zeros((4, 2), "float32")).batch(2).to_keras()
    assert all("this penstock was run with" in str(each.message) for each in found)


HIDING = """
import sys
class Hides:
    def find_spec(self, name, path=None, target=None):
        if name == {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hides())
import numpy as np
import penstock as ps
ps.from_arrays(np.zeros((4, 2), "float32")).batch(2).to_keras()
"""


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("keras", "to_keras needs keras: pip install 'penstock[keras]'"),
        (BACKEND, f"without the backend that it is set to use, {BACKEND}: pip install 'penstock["),
    ],
)
def test_what_is_missing_is_named_with_the_cure(missing, message):
    script = HIDING.format(missing=missing)
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    last = result.stderr.splitlines()[-1]
    assert last.startswith("ImportError: ")
    assert message in last
