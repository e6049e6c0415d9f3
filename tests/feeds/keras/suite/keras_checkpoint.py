"""The checkpoint goes on exactly where it saved, whatever feeds the model. ../test_checkpoint.py kills for real."""

import contextlib
import copy
import json
import zipfile

import keras
import numpy as np
import pytest

import penstock as ps
from feeds.keras.suite.models import BACKEND, Stop, StopAt, resumable_model, same_weights
from feeds.keras.training import NUM_ROWS, dataset

KINDS = ["rows", "filter", "steps"] + ([] if BACKEND == "torch" else ["several"])


def run(kind, folder, stop_at=None, epochs=2):
    model, counter = resumable_model(kind)
    feed = dataset(kind).to_keras()
    saving = [feed.checkpoint(str(folder), every_batches=2)]
    history = model.fit(
        feed,
        epochs=epochs,
        verbose=0,
        steps_per_epoch=7 if kind == "steps" else None,
        callbacks=saving if stop_at is None else [*saving, StopAt(stop_at)],
    )
    return model, keras.ops.convert_to_numpy(counter.seen.value), history.history


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_cut_short_anywhere_ends_with_the_same_weights(tmp_path, kind):
    expected, seen, history = run(kind, tmp_path / "whole")
    for stops in ([1, 5, 3, 7], [11, 2]):
        if kind == "several":
            stops = [1 + stop // 3 for stop in stops]
        folder = tmp_path / f"cut{stops}"
        for stop in stops:
            with pytest.raises(Stop):
                run(kind, folder, stop)
        found, found_seen, found_history = run(kind, folder)
        assert same_weights(found, expected), (kind, stops)
        assert np.array_equal(found_seen, seen)
        assert found_history["mae"][-1] == history["mae"][-1], (kind, stops)
        assert found_history["loss"][-1] == history["loss"][-1], (kind, stops)
    if kind == "rows":
        assert (seen == 2).all()
        assert len(seen) == NUM_ROWS


def test_a_finished_run_is_not_trained_again(tmp_path):
    first, seen, _ = run("rows", tmp_path)
    with pytest.warns(ps.PenstockWarning, match="nothing is left to train"):
        again, seen_again, _ = run("rows", tmp_path)
    assert same_weights(first, again)
    _, seen_more, _ = run("rows", tmp_path, epochs=3)
    assert np.array_equal(seen, seen_again)
    assert (seen_more == 3).all()


def test_a_checkpoint_of_another_model_or_pipeline_is_refused(tmp_path):
    run("rows", tmp_path)
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    feed = dataset("rows").to_keras()
    with pytest.raises(ps.StateError, match=r"another model.*Remove"):
        model.fit(feed, verbose=0, callbacks=[feed.checkpoint(str(tmp_path))])
    model, _ = resumable_model("rows")
    feed = dataset("filter").to_keras()
    with pytest.raises(ps.StateError, match=r"another pipeline.*Go on with the chain.*Remove"):
        model.fit(feed, epochs=3, verbose=0, callbacks=[feed.checkpoint(str(tmp_path))])


def small_model(rate=1e-3, units=1):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(units), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(rate), "mse")
    return model


def fit(folder, *, callbacks=None, stop_at=None, model=None):
    """Return a trained model, and how many epochs it was trained for now."""
    model = model or small_model()
    feed = dataset("rows").to_keras()
    callbacks = callbacks or [feed.checkpoint(str(folder), every_batches=2)]
    more = [] if stop_at is None else [StopAt(stop_at)]
    history = model.fit(feed, epochs=2, verbose=0, callbacks=[*callbacks, *more])
    return model, len(history.epoch)


@pytest.fixture
def cut_short(tmp_path):
    """A run that died in its first epoch, after it had saved twice."""
    with pytest.raises(Stop):
        fit(tmp_path, stop_at=5)
    return tmp_path / "checkpoint.npz"


def with_meta(path, **changes):
    """Change what a checkpoint says of itself."""
    with np.load(path) as saved:
        arrays = {name: saved[name] for name in saved.files}
    meta = json.loads(arrays["meta"].tobytes())
    meta = {name: value for name, value in (meta | changes).items() if value is not GONE}
    arrays["meta"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    np.savez(path, **arrays)
    return meta


GONE = object()


def without_member(path):
    with zipfile.ZipFile(path) as before:
        members = {name: before.read(name) for name in before.namelist()}
    with zipfile.ZipFile(path, "w") as after:
        for name in sorted(members)[:-1]:
            after.writestr(name, members[name])


def cut(share):
    def damage(path):
        content = path.read_bytes()
        path.write_bytes(content[: int(len(content) * share)])

    return damage


def flipped(share):
    def damage(path):
        content = bytearray(path.read_bytes())
        content[int(len(content) * share)] ^= 255
        path.write_bytes(content)

    return damage


def random_of(name, state):
    """Change the state of one generator."""

    def damage(path):
        known = with_meta(path)["random"]
        with_meta(path, random=known | {name: state})

    return damage


DAMAGE = {
    "empty": cut(0),
    "cut early": cut(0.1),
    "cut late": cut(0.97),
    "first byte": flipped(0),
    "in the directory": lambda path: path.write_bytes(
        path.read_bytes().replace(b"PK\x01\x02", b"PK\x01\x03")
    ),
    "foreign": lambda path: path.write_bytes(b"x" * 1000),
    "an npy": lambda path: np.save(path.open("wb"), np.arange(3)),
    "other arrays": lambda path: np.savez(path, x=np.arange(3)),
    "no JSON": lambda path: np.savez(path, meta=np.frombuffer(b"{", np.uint8)),
    "a list": lambda path: np.savez(path, meta=np.frombuffer(b"[]", np.uint8)),
    "a variable is missing": without_member,
    "no dtypes": lambda path: with_meta(path, dtypes=GONE),
    "unknown dtypes": lambda path: with_meta(path, dtypes=["int3"] * 20),
    "shapes": lambda path: with_meta(path, shapes=None),
    "random": lambda path: with_meta(path, random=7),
    "random, in part": lambda path: with_meta(path, random={"python": [3, [1, 2], None]}),
    "random of NumPy": random_of("numpy", ["MT19937", [1, 2], 0, 0, 0.0]),
    "random of Keras": random_of("keras", [1, 2, 3]),
    "random of Keras, negative": random_of("keras", [-1, 2]),
    "random of the backend": random_of(BACKEND if BACKEND != "jax" else "keras", [1]),
}


def test_a_damaged_checkpoint_falls_back_to_the_one_before_it_and_names_the_file(cut_short):
    expected, _ = fit(cut_short.parent / "whole")
    good = {path: path.read_bytes() for path in cut_short.parent.glob("*.npz")}
    assert len(good) == 2
    model = small_model()  # One for all, whatever it was trained to before: it is compiled once.
    for name, damage in DAMAGE.items():
        for path, content in good.items():
            path.write_bytes(content)
        damage(cut_short)
        with pytest.warns(
            ps.PenstockWarning, match=r"checkpoint\.npz.* damaged.*checkpoint-before"
        ):
            found, _ = fit(cut_short.parent, model=model)
        assert same_weights(found, expected), name


def test_if_both_are_damaged_the_error_names_the_file_and_the_cure(cut_short):
    for path in cut_short.parent.glob("*.npz"):
        cut(0.5)(path)
    with pytest.raises(ps.DataError, match=r"checkpoint\.npz: the checkpoint is damaged.*Remove"):
        fit(cut_short.parent)


def test_no_flipped_byte_goes_unnoticed_or_breaks_anything(cut_short):
    content = cut_short.read_bytes()
    feed = dataset("rows").to_keras()
    callback = feed.checkpoint(str(cut_short.parent))
    callback.set_model(small_model())
    callback.set_params({"epochs": 2})
    callback.on_train_begin()
    expected = [np.asarray(keras.ops.convert_to_numpy(v.value)) for v in callback._variables()]
    step = max(1, len(content) // 150)
    for number, at in enumerate(range(0, len(content), step)):
        flipped_content = bytearray(content)
        flipped_content[at] ^= 1 << number % 8
        cut_short.write_bytes(flipped_content)
        saved = None
        with contextlib.suppress(ps.PenstockError):
            saved = callback._load_from(cut_short)
        if saved is None:
            continue
        # A byte of no matter, such as the time of a member.
        pairs = zip(saved.values, expected, strict=False)
        assert all(np.array_equal(*pair, equal_nan=True) for pair in pairs), at
    feed.close()


IMPOSSIBLE = {
    "epoch": [-1, 1.5, "two", None, [], float("nan"), True, 10**30],
    "steps_done": [-1, 10**6, "two", None, 1.0],
    "is_stopped": [2, "no", None],
    "iterations": [0, 10**6, -1, "many"],
    "state": [None, [], {}, 7, {"version": 2}],
}


def test_counters_that_can_not_be_true_are_refused_by_name(cut_short):
    content = cut_short.read_bytes()
    model = small_model()
    cases = [{name: value} for name, values in IMPOSSIBLE.items() for value in values]
    state = with_meta(cut_short)["state"]
    for wrong in (
        {"element": -1},
        {"element": 10**6},
        {"epoch": -1},
        {"element": 1},
        {"cursor": 10**6},
    ):
        cases.append({"state": state | wrong})
    for changes in cases:
        cut_short.write_bytes(content)
        with_meta(cut_short, **changes)
        before = [np.asarray(v) for v in model.get_weights()]
        with pytest.raises(ps.StateError, match=r"checkpoint\.npz"):
            fit(cut_short.parent, model=model)
        assert all(map(np.array_equal, before, model.get_weights())), changes


def test_a_directory_in_its_place_is_an_error_at_once(tmp_path):
    (tmp_path / "checkpoint.npz").mkdir()
    with pytest.raises(ps.PenstockError, match=r"checkpoint\.npz: the checkpoint is a directory"):
        fit(tmp_path)


def test_a_folder_that_can_not_be_made_is_an_error_of_ours(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ps.WriteError, match=r"checkpoint\.npz: a part of this path is a file"):
        fit(tmp_path / "file" / "folder")


def test_each_trial_of_a_tuner_trains_with_a_deep_copy_of_its_own(tmp_path):
    """As KerasTuner does: it never uses the callbacks it was given, but a deep copy for each trial."""
    feed = dataset("rows").to_keras()
    given = [feed.checkpoint(str(tmp_path), every_batches=2)]
    for trial in range(3):
        callbacks = copy.deepcopy(given)
        model = small_model(rate=10.0**-trial, units=1 + trial // 2)
        history = model.fit(feed, epochs=2, verbose=0, callbacks=callbacks)
        assert len(history.epoch) == 2
        # The same copy goes on from what it saved: there is nothing left to do.
        with pytest.warns(ps.PenstockWarning, match="nothing is left to train"):
            assert not model.fit(feed, epochs=2, verbose=0, callbacks=callbacks).epoch
    # What the last trial saved is gone on from by another process, which has one callback.
    with pytest.warns(ps.PenstockWarning, match="nothing is left to train"):
        assert fit(tmp_path, model=small_model(units=2))[1] == 0
