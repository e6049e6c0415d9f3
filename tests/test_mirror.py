"""Tests lie where the code lies: who knows a module knows the file that tests it, and the other way round."""

from itertools import accumulate
from pathlib import Path

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "src" / "penstock"

# Tests of no single module of penstock, by file or by folder.
ACROSS = {
    "docs",  # the code and the links of the documentation
    "examples",  # the scripts of examples/, as their users start them
    "native",  # the kernels of src/native, against their twins
    "test_chains.py",  # any chain of stages, against a model in plain Python
    "feeds/test_layouts.py",  # the same, in every framework
    "test_layouts.py",  # every way to store rows, with every dtype and shuffle
    "test_tfdata_oracle.py",  # the same chains in tf.data
    "test_mistakes.py",  # the first mistakes of new users
    "test_layers.py",  # who may import whom
    "test_surface.py",  # what users import and see
    "test_coming_from.py",  # what docs/coming_from.md lists
    "test_contributing.py",  # what CONTRIBUTING.md says
    "test_command_line.py",  # what docs/command_line.md shows
    "test_conftest.py",  # the tests themselves
    "test_release.py",  # what is published, and the scripts of tools/ that check it
    "test_mirror.py",
    "memory/test_promises.py",  # the budget, kept by whole chains
    "sources/test_memory.py",  # every format, in a container smaller than its file
    "sources/test_mutations.py",  # every format, damaged at random
    "engine/stream/test_ends_well.py",  # streams of all kinds, however they end
    "engine/stream/test_interrupts.py",
    "engine/stream/test_user_code.py",  # functions that fail, in whichever stage
}
# Each of these modules has a file of tests with its name.
TESTED = (
    "core/*.py",
    "ranks/*.py",
    "live/*.py",
    "reports/*.py",
    "stages/*.py",
    "stages/shuffle/*.py",
    "stages/cache/*.py",
    "stages/split/*.py",
    "sources/*.py",
    "feeds/*.py",
    "feeds/on_device/*.py",
    "feeds/jax/*.py",
    "feeds/keras/*.py",
    "feeds/tf/*.py",
    "feeds/torch/*.py",
)
# Except these, which have no tests of their own.
UNTESTED = {
    "feeds/on_device/device.py",  # abstract: each framework's device has tests
    "feeds/keras/calls.py",  # frames of Keras, which are there only while it calls a feed
    "feeds/keras/on_tensorflow.py",  # what a feed asks of an epoch of Keras, likewise
    "feeds/keras/going_on.py",  # likewise, as the checkpoint's part
    "feeds/keras/multi_worker.py",  # needs several processes: feeds/keras/test_multi_worker.py starts them
    "feeds/keras/on_torch.py",  # where a release of Keras has its own parts: every test on PyTorch
    "feeds/keras/ranks_on_torch.py",  # takes several processes: test_ranks_on_torch.py starts them
    "feeds/keras/random_state.py",  # saved and put back by the checkpoint
    "feeds/keras/saved_run.py",  # its file, which the tests of the checkpoint damage
    "feeds/keras/fit_command.py",  # what `penstock fit` does: cli/test_fit.py
    "feeds/keras/demo.py",  # a process that `penstock demo` starts; no test does
}
# Tests of Keras are run once a backend by feeds/keras/test_feed.py: suite/keras_b.py tests feeds/keras/b.py.
SUITE = TESTS / "feeds" / "keras" / "suite"


def is_module(path):
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def has_namesake(test):
    """Whether tests/a/test_b_and_more.py has a module penstock.a.b_and_more, a.b_and or a.b."""
    words = test.stem.removeprefix("test_").split("_")
    folder = PACKAGE / test.parent.relative_to(TESTS)
    return any(is_module(folder / name) for name in accumulate(words, "{}_{}".format))


def namesake_of(module):
    """Return where the tests of a module of penstock are to be."""
    if module.parent == Path("feeds/keras"):
        return SUITE / f"keras_{module.name}"
    return TESTS / module.parent / f"test_{module.name}"


def is_across(test):
    place = test.relative_to(TESTS)
    return any(str(part) in ACROSS for part in (place, *place.parents))


def test_every_file_of_tests_has_the_name_of_what_it_tests():
    tests = [test for test in TESTS.rglob("test_*.py") if not is_across(test)]
    assert not [str(test.relative_to(TESTS)) for test in tests if not has_namesake(test)]


def test_every_stage_source_and_feed_has_a_file_of_tests():
    found = [path.relative_to(PACKAGE) for glob in TESTED for path in PACKAGE.glob(glob)]
    modules = [path for path in found if path.stem != "__init__" and str(path) not in UNTESTED]
    assert len(modules) > 50
    assert not [str(path) for path in modules if not namesake_of(path).is_file()]


def test_every_file_of_the_keras_suite_has_the_name_of_a_module_of_the_feed():
    names = [path.stem.removeprefix("keras_") for path in SUITE.glob("keras_*.py")]
    assert names
    assert (SUITE.parent / "test_feed.py").is_file()  # which runs them
    assert not [name for name in names if not is_module(PACKAGE / "feeds" / "keras" / name)]


def test_every_format_and_framework_in_a_folder_has_a_folder_of_tests():
    modules = [path for kind in ("sources", "feeds") for path in PACKAGE.glob(f"{kind}/*/*.py")]
    folders = {path.parent.relative_to(PACKAGE) for path in modules}
    assert not [str(one) for one in folders if not any((TESTS / one).glob("test_*.py"))]


# Pairs of modules whose names differ by an ending, each with the reason why nobody takes one for the other.
ALIKE = {
    ("shard", "shards"),  # the stage, and the folders that write() makes
    ("reader", "reading"),  # a folder of what formats are made from
    ("stage", "stages"),  # a stage, in the folder of stages
    ("feed", "feeds"),  # a feed, in the folder of feeds
    ("report", "reports"),  # the report, in the folder of reports
}


def test_no_two_modules_have_names_that_differ_by_an_ending():
    stems = {path.stem for path in PACKAGE.rglob("*.py")} | {
        path.name for path in PACKAGE.rglob("*") if (path / "__init__.py").is_file()
    }
    endings = ("s", "es", "ed", "d", "ing", "er", "ers", "r")
    alike = {(one, one + ending) for one in stems for ending in endings if one + ending in stems}
    assert alike <= ALIKE


def test_what_is_across_is_there():
    assert not [name for name in ACROSS if not (TESTS / name).exists()]


def test_what_has_no_tests_of_its_own_is_there_and_has_none():
    assert not [name for name in UNTESTED if not (PACKAGE / name).is_file()]
    assert not [name for name in UNTESTED if namesake_of(Path(name)).exists()]
