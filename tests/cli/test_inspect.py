"""penstock inspect: what is in files, and what a shuffled pass would cost."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

import penstock as ps
from penstock.cli import main
from penstock.cli.facts import decoded_times


def inspect(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["inspect", *arguments])
    found = capsys.readouterr()
    return code, found.out, found.err


def test_it_shows_fields_rows_bytes_chunks_and_the_shuffle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset(
            "x", data=np.zeros((1000, 50), "f4"), chunks=(100, 50), compression="gzip"
        )
        file["y"] = np.arange(1000)
    code, text, _ = inspect(capsys, str(tmp_path / "a.h5"))
    assert code == 0
    for words in (
        "rows     1000, 208 B each",
        "field    x: float32 (50), 200 B a row",
        "field    y: int64 (), 8 B a row",
        "chunks   10, of up to 100 rows (20.8 KB)",
        "packed with gzip",
        "mixing 1.00",
        "would do with",
    ):
        assert words in text


def test_it_shows_windows_and_mixing_of_larger_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "a.npy", np.zeros((100_000, 20)))
    code, text, _ = inspect(capsys, str(tmp_path), "--window", "1MB")
    assert code == 0
    order = ps.from_files(tmp_path).shuffle(window="1MB").node.order(0)
    assert f"{order.num_windows} windows, mixing {order.mixing():.2f}" in text
    assert "reads  16 MB a pass (1.00 times the files)" in text


def test_chunks_that_are_decoded_more_than_once_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, length in enumerate((15_000, 15_000)):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            file.create_dataset(
                "x", data=np.zeros((length, 40)), chunks=(10_000, 40), compression="gzip"
            )
    ds = ps.from_files(tmp_path)
    # Blocks of 10,000: chunk 2 of file 0 and both of file 1 are cut in two.
    assert decoded_times(ds.node, 10_000) == pytest.approx(
        (10_000 + 2 * 5_000 + 2 * 10_000) / 30_000, abs=0.4
    )
    code, text, _ = inspect(capsys, str(tmp_path), "--window", "200KB")
    assert code == 0
    assert "decoded more" in text
    same = tmp_path / "0.h5"
    assert decoded_times(ps.from_files(same).node, 10_000) == 1.0


def test_forward_formats_and_images_are_shown_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,x\n")
    code, text, _ = inspect(capsys, str(tmp_path / "a.csv"))
    assert code == 0
    assert "rows     1, 17 B each" in text
    # A quote that is never closed: rows can't be numbered.
    (tmp_path / "b.csv").write_text("a,b\n" + "1,x\n" * 100_000 + '2,"y\n')
    code, text, _ = inspect(capsys, str(tmp_path / "b.csv"))
    assert code == 0
    assert "unknown until they are read" in text
    from PIL import Image

    (tmp_path / "images" / "cat").mkdir(parents=True)
    Image.fromarray(np.zeros((4, 5, 3), "u1")).save(tmp_path / "images" / "cat" / "1.png")
    code, text, _ = inspect(capsys, str(tmp_path / "images"))
    assert code == 0
    assert "image: uint8 (4, 5, 3)" in text


def test_raw_files_take_a_dtype_and_a_shape(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.zeros((6, 2, 3), "f4").tofile(tmp_path / "a.bin")
    code, text, _ = inspect(capsys, str(tmp_path / "a.bin"), "--dtype", "float32", "--shape", "2,3")
    assert code == 0
    assert "rows     6, 24 B each" in text


def test_what_cannot_be_read_is_one_line_and_a_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.npy").write_bytes(b"not an array")
    code, text, error = inspect(capsys, str(tmp_path / "a.npy"))
    assert (code, text) == (1, "")
    assert error.startswith("penstock inspect: ")
    assert "a.npy" in error
    assert error.count("\n") == 1


def test_tfrecords_are_shown_with_the_features_that_were_found(tmp_path, capsys):
    ds = ps.from_arrays({"x": np.zeros((5, 3), "float32"), "y": np.arange(5)})
    ds.write(tmp_path / "out", format="tfrecord")
    assert main(["inspect", str(tmp_path / "out" / "*.tfrecord")]) == 0
    text = capsys.readouterr().out
    assert "records  5" in text
    assert "feature  'x': FixedFeature(shape=(3,)" in text
    assert "mixing 1.00" in text
    (tmp_path / "none.tfrecord").write_bytes(b"")
    assert main(["inspect", str(tmp_path / "none.tfrecord")]) == 0
    assert "features none (it has no records, and so no features)" in capsys.readouterr().out
    name = next((tmp_path / "out").iterdir())
    name.write_bytes(name.read_bytes()[:-3])
    assert main(["inspect", str(name)]) == 1
    assert "--raw" not in capsys.readouterr().out
    assert main(["inspect", str(name), "--json"]) == 1
    records = json.loads(capsys.readouterr().out)["records"]
    assert "row 4" in records["damage"]
    assert set(records["features"]) == {"x", "y"}


@pytest.mark.parametrize("command", ["inspect", "convert"])
@pytest.mark.parametrize("text", ['{"key": secret', "[1]", '"secret"', ""])
def test_storage_options_that_are_no_json_object_are_refused_by_the_name_of_the_flag(
    command, text, tmp_path, capsys
):
    target = [str(tmp_path / "out")] if command == "convert" else []
    code = main([command, str(tmp_path / "a.npy"), *target, "--storage-options", text])
    message = capsys.readouterr().err
    assert code == 2
    assert "'--storage-options': it must be a JSON object" in message
    assert "secret" not in message
