"""PyTorch Lightning, Hugging Face's Trainer and accelerate, run for real: killed runs end as whole ones do."""

import contextlib
import itertools
import os

import numpy as np
import pytest

import penstock as ps

torch = pytest.importorskip("torch")

NUM_ROWS, BATCH_SIZE, STEPS, EPOCHS = 50, 8, 7, 3
X = np.random.default_rng(0).random((NUM_ROWS, 4), np.float32)
Y = X.sum(axis=1)
# These frameworks warn of much: that there is no GPU, few workers, old protocols.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def rows(kind, fields):
    ds = ps.from_arrays(fields).shuffle(seed=3)
    return ds.filter(lambda *row: True) if kind == "flow" else ds


def same_weights(one, other):
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(mine, theirs) for mine, theirs in pairs)


class Killed(Exception):
    pass


# -- PyTorch Lightning --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lightning():
    return pytest.importorskip("lightning")


def fit(lightning, kind, folder, *, resume=None, die_at=None, epoch_end=False, **options):
    """Train, and save every step, or the end of each epoch; return the model and the batches it saw."""
    from lightning.pytorch.callbacks import ModelCheckpoint, OnExceptionCheckpoint

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.seen = []
            self.net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 1))

        def training_step(self, batch, number):
            if len(self.seen) == die_at:
                raise Killed
            self.seen.append(batch[0][:, 0].tolist())
            return ((self.net(batch[0])[:, 0] - batch[1]) ** 2).mean()

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), 0.01)

    torch.manual_seed(0)
    model = Model()
    every = {"every_n_epochs": 1} if epoch_end else {"every_n_train_steps": 1}
    saving = ModelCheckpoint(
        folder, "{step}", save_top_k=-1, save_on_train_epoch_end=epoch_end, **every
    )
    callbacks = [saving] if die_at is None else [OnExceptionCheckpoint(folder)]
    trainer = lightning.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=callbacks,
        **options,
    )
    feed = rows(kind, (X, Y)).batch(BATCH_SIZE).to_torch()
    with contextlib.suppress(Killed):
        trainer.fit(model, feed, ckpt_path=resume)
    return model


def check_checkpoints(lightning, kind, folder, steps, **options):
    """Go on from the checkpoints after some steps: with the very next batch, and to the same weights."""
    whole = fit(lightning, kind, folder / "whole", **options)
    for step in steps:
        path = folder / "whole" / f"step={step}.ckpt"
        again = fit(lightning, kind, folder / f"{step}", resume=path, **options)
        assert again.seen == whole.seen[step:], path
        assert same_weights(again, whole), path


@pytest.mark.parametrize("kind", ["rows", "flow"])
def test_lightning_goes_on_in_mid_epoch_and_at_both_ends_of_one(lightning, kind, tmp_path):
    check_checkpoints(lightning, kind, tmp_path, [1, 6, 7, 8, 17, 20, 21])


@pytest.mark.parametrize("kind", ["rows", "flow"])
def test_lightning_goes_on_after_the_end_of_an_epoch(lightning, kind, tmp_path):
    check_checkpoints(lightning, kind, tmp_path, [7, 14, 21], epoch_end=True)


def test_lightning_goes_on_in_epochs_that_it_ends_early(lightning, tmp_path):
    check_checkpoints(lightning, "rows", tmp_path, [3, 4, 5, 12], limit_train_batches=4)


@pytest.mark.parametrize("kind", ["rows", "flow"])
def test_lightning_trains_on_the_batch_that_failed_when_it_goes_on(lightning, kind, tmp_path):
    whole = fit(lightning, kind, tmp_path / "whole")
    for die_at in (0, 3, 7, 13):
        killed = fit(lightning, kind, tmp_path / f"{die_at}", die_at=die_at)
        (path,) = (tmp_path / f"{die_at}").glob("*.ckpt")
        again = fit(lightning, kind, tmp_path / f"again-{die_at}", resume=path)
        assert killed.seen + again.seen == whole.seen
        assert same_weights(again, whole)


def test_states_that_are_asked_for_by_hand_are_those_of_the_feed_that_is_asked(lightning, tmp_path):
    ds = ps.from_arrays((X, Y)).batch(BATCH_SIZE)
    train, valid, told = ds.to_torch(), ds.to_torch(), []

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Linear(4, 1)

        def training_step(self, batch, number):
            return self.net(batch[0]).mean()

        def validation_step(self, batch, number):
            told.append((train.state_dict()["element"], valid.state_dict()["element"]))

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.01)

    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(
        max_epochs=1,
        val_check_interval=3,
        num_sanity_val_steps=0,
        accelerator="cpu",
        **quiet,
        limit_val_batches=2,
        enable_checkpointing=False,
    )
    trainer.fit(Model(), train, valid)
    assert told == [(3, 1), (3, 2), (6, 1), (6, 2)]


def test_lightning_reads_epoch_0_first(lightning, tmp_path):
    model = fit(lightning, "rows", tmp_path)
    ds = rows("rows", (X, Y)).batch(BATCH_SIZE)
    wanted = [x[:, 0].tolist() for epoch in range(EPOCHS) for x, _ in ds.stream(epoch=epoch)]
    assert model.seen == wanted


# -- Hugging Face's Trainer ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def transformers():
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    return pytest.importorskip("transformers")


def train(transformers, feed, folder, *, resume=None, **options):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.seen = []
            layers = torch.nn.Linear(4, 3), torch.nn.Dropout(0.2), torch.nn.Linear(3, 1)
            self.net = torch.nn.Sequential(*layers)

        def forward(self, x, labels):
            self.seen.append(x[:, 0].tolist())
            return {"loss": ((self.net(x)[:, 0] - labels) ** 2).mean()}

    class Trainer(transformers.Trainer):
        def get_train_dataloader(self):
            return feed

    torch.manual_seed(0)
    model = Model()
    options = {"num_train_epochs": EPOCHS, "save_strategy": "steps", "save_steps": 5} | options
    arguments = transformers.TrainingArguments(
        str(folder), report_to=[], disable_tqdm=True, use_cpu=True, logging_strategy="no", **options
    )
    found = Trainer(model, arguments).train(resume_from_checkpoint=resume)
    return model, found.metrics


def hugging_feed(kind="rows"):
    ds = rows("flow" if "flow" in kind else "rows", {"x": X, "labels": Y})
    return (ds.repeat() if "endless" in kind else ds).batch(BATCH_SIZE).to_torch()


def check_each_folder(transformers, kind, folder, **options):
    whole, metrics = train(transformers, hugging_feed(kind), folder / "whole", **options)
    saved = sorted((folder / "whole").glob("checkpoint-*"), key=lambda path: int(path.name[11:]))
    # The last one is left out: Trainer, given max_steps, takes a step more from there.
    for path in saved[:-1]:
        feed = hugging_feed(kind)
        again, _ = train(transformers, feed, folder / "again", resume=str(path), **options)
        done = int(path.name[11:])
        if "gradient_accumulation_steps" in options:
            epochs, steps = divmod(done, -(-STEPS // 2))  # The last step of an epoch has one batch.
            done = epochs * STEPS + steps * 2
        assert again.seen == whole.seen[done:], path
        assert same_weights(again, whole), path
    return whole, metrics


@pytest.mark.parametrize(
    "options",
    [{}, {"gradient_accumulation_steps": 2}, {"save_strategy": "epoch", "max_steps": 12}],
    ids=str,
)
def test_the_trainer_goes_on_from_every_checkpoint(transformers, options, tmp_path):
    whole, metrics = check_each_folder(transformers, "rows", tmp_path, **options)
    ds = rows("rows", (X, Y)).batch(BATCH_SIZE)
    wanted = [x[:, 0].tolist() for epoch in range(EPOCHS) for x, _ in ds.stream(epoch=epoch)]
    assert whole.seen == wanted[: options.get("max_steps")]
    if not options:
        samples = metrics["train_samples_per_second"] * metrics["train_runtime"]
        assert samples == pytest.approx(NUM_ROWS * EPOCHS, rel=0.1)  # rows, not batches


@pytest.mark.parametrize("kind", ["endless", "endless flow"])
def test_the_trainer_goes_on_in_data_that_never_ends(transformers, kind, tmp_path):
    check_each_folder(transformers, kind, tmp_path, max_steps=9)


def test_the_trainer_is_told_that_steps_alone_are_no_place_where_epochs_have_no_length(
    transformers, tmp_path
):
    train(transformers, hugging_feed("flow"), tmp_path / "whole", max_steps=12)
    path = str(tmp_path / "whole" / "checkpoint-10")
    with pytest.raises(ps.StateError, match=r"fewer than 10 batches.*\.repeat\(\)"):
        train(transformers, hugging_feed("flow"), tmp_path / "again", resume=path, max_steps=12)


# -- accelerate, and loops of one's own ---------------------------------------------------------


def test_accelerate_saves_a_feed_and_leaves_out_batches_of_it(tmp_path):
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    ds = rows("rows", (X, Y)).batch(BATCH_SIZE)
    feed = accelerator.prepare(ds.to_torch())
    accelerator.register_for_checkpointing(feed)
    for _ in itertools.islice(feed, 3):
        pass
    accelerator.save_state(str(tmp_path / "saved"))
    wanted = [x.tolist() for x, _ in feed_of(ds, epoch=0, first=3)]
    list(feed)
    accelerator.load_state(str(tmp_path / "saved"))
    assert [x.tolist() for x, _ in feed] == wanted
    feed.set_epoch(0)
    assert [x.tolist() for x, _ in accelerate.skip_first_batches(feed, 3)] == wanted
    assert [x.tolist() for x, _ in feed] == [x.tolist() for x, _ in feed_of(ds, epoch=1, first=0)]


def feed_of(ds, *, epoch, first):
    with ds.stream(epoch=epoch) as stream:
        return [tuple(map(np.array, batch)) for batch in stream][first:]


def test_a_data_loader_that_is_left_half_way_leaves_nothing_open():
    feed = rows("flow", (X, Y)).batch(BATCH_SIZE).to_torch()
    loader = torch.utils.data.DataLoader(
        feed.dataset, batch_sampler=feed.batch_sampler, collate_fn=feed.collate_fn
    )
    for number, _ in enumerate(loader):
        if number == 2:
            break
    assert not feed._open
    assert (feed.state()["epoch"], feed.state()["element"]) == (0, 3)


def test_the_dataset_of_a_feed_has_its_rows():
    ds = ps.from_arrays((X, Y)).shuffle(seed=0)
    assert len(ds.batch(8).to_torch().dataset) == NUM_ROWS
    assert len(ds.batch(8, drop_remainder=True).to_torch().dataset) == 48
    for unknown in (ds.filter(lambda x, y: True), ds.repeat()):
        dataset = unknown.batch(8).to_torch().dataset
        assert dataset
        with pytest.raises(TypeError, match="number of rows is unknown"):
            len(dataset)


def test_set_epoch_names_the_next_epoch_and_keeps_a_state_of_it():
    ds = rows("rows", (X, Y)).batch(BATCH_SIZE)
    feed = ds.to_torch()
    feed.set_epoch(5)
    assert (feed.state()["epoch"], len(list(feed))) == (5, STEPS)
    with ds.stream(epoch=5) as stream:
        next(stream)
        state = stream.state()
    feed.load_state_dict(state)
    feed.set_epoch(5)
    assert len(list(feed)) == STEPS - 1
    feed.load_state_dict(state)
    with pytest.raises(ps.StateError, match="after batch 1 of epoch 5: load a state, or set"):
        feed.set_epoch(6)
    with pytest.raises(TypeError, match="epoch must be a whole number"):
        feed.set_epoch(None)


def test_a_state_dict_is_a_state_that_json_can_hold():
    import json

    ds = rows("flow", (X, Y)).batch(BATCH_SIZE)
    feed = ds.to_torch()
    for _ in itertools.islice(feed, 2):
        pass
    again = ds.to_torch()
    again.load_state_dict(json.loads(json.dumps(feed.state_dict())))
    assert [x.tolist() for x, _ in again] == [x.tolist() for x, _ in feed_of(ds, epoch=0, first=2)]
    with pytest.raises(ps.StateError, match=r"must be a dict made by state\(\)"):
        again.load_state_dict({})
