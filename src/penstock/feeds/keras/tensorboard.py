"""A callback of Keras that writes what the data of a training does to TensorBoard, while it trains."""

from pathlib import Path
from time import monotonic
from typing import Any

import keras
import numpy as np

from penstock.live.pace import Pace
from penstock.reports.event_file import EventFile
from penstock.reports.report import Report

FOLDER = "penstock"
"""In the log folder: TensorBoard follows one file a folder, and `keras.callbacks.TensorBoard` writes to others."""


class TensorBoardFigures(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """Writes the pace of the data, how long the training waited for it, and memory against the budget, as scalars.

    They are those of the last few seconds, by the step of the training, as `penstock watch` shows them. At the end of
    each epoch the bottleneck and its cure come as text, and decisions as they are made. Needs neither TensorFlow nor
    TensorBoard to write. Of several ranks the first one writes.
    """

    def __init__(self, feed: Any, log_dir: str, *, every_seconds: float = 5.0) -> None:
        super().__init__()
        if not every_seconds > 0:
            raise ValueError(f"every_seconds must be more than 0, got {every_seconds!r}.")
        self._feed = feed
        self._log_dir = log_dir
        self._every = every_seconds
        self._file: EventFile | None = None
        self._step = 0
        """Steps of the optimizer."""
        self._last = 0.0
        self._pace = Pace()
        self._opened_at = 0.0
        """When the epoch that the pace is of was opened."""
        self._num_decisions = 0

    def on_train_begin(self, logs: Any = None) -> None:
        """Begin another file: what was written before stays."""
        if self._feed.is_first_rank:
            self._file = EventFile(Path(self._log_dir) / FOLDER)
        self._last = monotonic()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Go on with the steps that the optimizer has done, by now: a checkpoint may have been loaded."""
        self._count_steps()

    def _count_steps(self) -> None:
        done = getattr(self.model.optimizer, "iterations", 0)
        tensor = keras.ops.convert_to_tensor(done)
        self._step = int(np.asarray(keras.ops.convert_to_numpy(tensor)))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Write, if it is time to."""
        self._step += self.model.steps_per_execution or 1
        if monotonic() - self._last >= self._every:
            self._write(with_advice=False)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Write how the epoch ended, and what its bottleneck was."""
        self._count_steps()  # With steps_per_execution, the last call may have had fewer.
        self._write(with_advice=True)

    def _write(self, *, with_advice: bool) -> None:
        self._last = monotonic()
        reading = self._feed.training
        if self._file is None or reading is None:
            return
        report = reading.latest.report()
        if report.opened_at != self._opened_at:
            self._opened_at, self._pace, self._num_decisions = report.opened_at, Pace(), 0
        texts = {f"{FOLDER}/bottleneck": report.advice} if with_advice and report.advice else {}
        decided = report.decisions[self._num_decisions :]
        self._num_decisions = len(report.decisions)
        if decided:
            texts[f"{FOLDER}/decisions"] = "  \n".join(map(str, decided))
        self._file.write(self._step, self._scalars(report), texts)

    def _scalars(self, report: Report) -> dict[str, float]:
        now = self._pace.now(report, is_asking=False)
        last = report.timeline[-1] if report.timeline else None
        found = {
            "rows_per_second": now.rows_per_second,
            "waited_share": now.waited_share,
            "read_bytes_per_second": now.read_per_second,
            "skipped_rows": report.num_skipped,
            "epoch": report.epoch,
        }
        if last is not None:  # Of rows that stay on the device, nothing is held here.
            found["memory_bytes"] = last.ledger_nbytes
            found["memory_share_of_budget"] = last.ledger_nbytes / max(1, report.budget_nbytes)
            found["blocks_ready"] = last.queue
            found["threads"] = last.threads
        scalars = {f"{FOLDER}/{name}": float(value) for name, value in found.items()}
        for number, (stage, busy) in enumerate(zip(report.stages, now.stage_busy, strict=True)):
            scalars[f"{FOLDER}_stages/{number} {stage.call}"] = busy
        return scalars

    def __deepcopy__(self, memo: dict[int, Any]) -> "TensorBoardFigures":
        """Return a callback for another model, of the same feed: a copy of that would not be the one in `fit`."""
        copied = TensorBoardFigures(self._feed, self._log_dir, every_seconds=self._every)
        memo[id(self)] = copied
        return copied
