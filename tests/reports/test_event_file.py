"""What is written for TensorBoard, read by TensorBoard."""

import sys
import types
from collections import defaultdict

import pytest

from penstock.reports.event_file import EventFile


def read_events(folder):
    """Return scalars and texts by tag, each a list of steps and values, as TensorBoard reads them."""
    # With a module of this name TensorBoard does without TensorFlow, which takes seconds to import.
    sys.modules.setdefault("tensorboard.compat.notf", types.ModuleType("notf"))
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0}).Reload()
    tags = found.Tags()
    scalars, texts = defaultdict(list), defaultdict(list)
    for tag in tags["scalars"]:
        scalars[tag] = [(event.step, event.value) for event in found.Scalars(tag)]
    for tag in tags["tensors"]:
        assert found.SummaryMetadata(tag).plugin_data.plugin_name == "text"
        texts[tag] = [
            (event.step, event.tensor_proto.string_val[0].decode()) for event in found.Tensors(tag)
        ]
    return scalars, texts


def test_tensorboard_reads_what_was_written(tmp_path):
    file = EventFile(tmp_path / "new" / "folder")
    assert not (tmp_path / "new").exists()
    file.write(0, {"penstock/rows_per_second": 12.5, "none": 0.0})
    file.write(300, {"penstock/rows_per_second": 1e9}, {"penstock/bottleneck": "map(größe) is it"})
    file.write(1 << 40, {"penstock/rows_per_second": 0.25}, {"penstock/bottleneck": "x" * 100_000})
    scalars, texts = read_events(tmp_path / "new" / "folder")
    assert scalars == {
        "penstock/rows_per_second": [(0, 12.5), (300, 1e9), (1 << 40, 0.25)],
        "none": [(0, 0.0)],
    }
    assert texts == {"penstock/bottleneck": [(300, "map(größe) is it"), (1 << 40, "x" * 100_000)]}


def test_what_was_written_is_there_at_once_and_no_file_stays_open(tmp_path):
    file = EventFile(tmp_path)
    file.write(1, {"a": 1.0})
    assert read_events(tmp_path)[0] == {"a": [(1, 1.0)]}
    file.write(2, {"a": 2.0})
    assert read_events(tmp_path)[0] == {"a": [(1, 1.0), (2, 2.0)]}


def test_two_files_of_one_process_have_names_of_their_own(tmp_path):
    first, second = EventFile(tmp_path), EventFile(tmp_path)
    assert first.path != second.path
    assert first.path.name.startswith("events.out.tfevents.")


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(OSError, match="taken"):
        EventFile(tmp_path / "taken").write(0, {"a": 1.0})


def test_names_that_are_not_utf8_are_written(tmp_path):
    name = b"a\xff".decode("utf-8", "surrogateescape")
    EventFile(tmp_path).write(1, {name: 2.0}, {"text": name})
    scalars, texts = read_events(tmp_path)
    assert list(scalars) == ["a\\udcff"]
    assert [text for _, text in texts["text"]] == ["a\\udcff"]
