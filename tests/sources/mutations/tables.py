"""Tables: Parquet and Arrow files of every codec, CSV and JSON Lines."""

import gzip
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.sources.mutations.kind import CHUNK, NUMBERS, TEXTS, Cover, Kind, X

import penstock as ps


def table() -> pa.Table:
    lists = pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), 12)
    columns = {"x": lists, "y": NUMBERS, "s": TEXTS, "flag": NUMBERS % 3 == 0}
    columns["kind"] = pa.array([f"kind {number % 4}" for number in NUMBERS]).dictionary_encode()
    columns["lists"] = pa.array(
        [list(range(number % 4)) for number in NUMBERS], pa.list_(pa.int32())
    )
    return pa.table(columns)


def nested_table() -> pa.Table:
    """Lists in lists, and the rarer types."""
    flat = pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), 3)
    pairs = [[[number, 1]] * (number % 4) for number in NUMBERS]
    columns = {
        "lists": pa.FixedSizeListArray.from_arrays(flat, 4),
        "pairs": pa.array(pairs, pa.large_list(pa.list_(pa.int16(), 2))),
        "when": pa.array(NUMBERS, pa.timestamp("us")),
        "day": pa.array(NUMBERS, pa.int32()).cast(pa.date32()),
        "bytes": pa.array([text.encode() for text in TEXTS], pa.large_binary()),
        "four": pa.array([b"%04d" % number for number in NUMBERS], pa.binary(4)),
        "half": pa.array(X[:, 0].astype("f2")),
        "word": pa.array(NUMBERS % 5).dictionary_encode(),
    }
    return pa.table(columns)


def parquet(path: Path, content: pa.Table | None = None, **options: Any) -> None:
    pq.write_table(content or table(), path, row_group_size=CHUNK * 2, **options)


def pages(path: Path) -> Cover:
    """The second half of each column of a group, which is data of its one page."""
    found = pq.read_metadata(path)
    ranges = []
    for group in range(found.num_row_groups):
        column = found.row_group(group).column(0)
        stop = column.data_page_offset + column.total_compressed_size
        ranges.append((stop - column.total_compressed_size // 2, stop))
    return {"": ranges}


def arrow(path: Path, compression: str | None = None, content: pa.Table | None = None) -> None:
    content = content or table()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(str(path), content.schema, options=options) as file:
        file.write_table(content, max_chunksize=CHUNK)


def csv(path: Path) -> None:
    rows = (f'{number},{number / 2},"t, {TEXTS[number]}"' for number in NUMBERS)
    path.write_text("\n".join(["y,half,text", *rows]) + "\n")


def jsonl(path: Path) -> None:
    rows = (
        {
            "y": number,
            "o": {"half": number / 2, "text": TEXTS[number]},
            "l": [number] * (number % 3),
        }
        for number in NUMBERS.tolist()
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def packed(write: Callable[[Path], None], path: Path) -> None:
    write(path)
    path.write_bytes(gzip.compress(path.read_bytes(), mtime=0))


def parquet_kind(**options: Any) -> Kind:
    return Kind("a.parquet", partial(parquet, **options))


def parquet_with_sums(**options: Any) -> Kind:
    write = partial(parquet, use_dictionary=False, write_page_checksum=True, **options)
    return Kind("a.parquet", write, covered=pages)


deltas = {"y": "DELTA_BINARY_PACKED", "s": "DELTA_BYTE_ARRAY"}
others = {"x.list.element": "BYTE_STREAM_SPLIT", "y": "BYTE_STREAM_SPLIT", "flag": "RLE"}
others |= {"s": "DELTA_LENGTH_BYTE_ARRAY"}
KINDS = {
    "parquet": parquet_kind(),
    "parquet, plain": parquet_with_sums(compression="none"),
    "parquet, pages 2": parquet_kind(data_page_version="2.0", compression="zstd"),
    "parquet, deltas": parquet_kind(
        use_dictionary=False, column_encoding=deltas, compression="gzip", write_page_index=True
    ),
    "parquet, brotli": parquet_kind(compression="brotli"),
    "parquet, lz4": parquet_kind(compression="lz4", data_page_size=200),
    "parquet, zstd, checksum": parquet_with_sums(compression="zstd"),
    "parquet, pages 2, snappy, checksum": parquet_with_sums(data_page_version="2.0"),
    "parquet, other encodings": parquet_kind(
        use_dictionary=False, column_encoding=others, version="2.6"
    ),
    "parquet, nested": parquet_kind(content=nested_table()),
    "arrow": Kind("a.arrow", arrow),
    "arrow, zstd": Kind("a.arrow", partial(arrow, compression="zstd")),
    "arrow, lz4": Kind("a.arrow", partial(arrow, compression="lz4")),
    "arrow, nested": Kind("a.feather", partial(arrow, content=nested_table())),
    "csv": Kind("a.csv", csv),
    "csv, packed": Kind("a.csv.gz", partial(packed, csv)),
    "jsonl": Kind("a.jsonl", jsonl),
    "jsonl, packed": Kind("a.jsonl.gz", partial(packed, jsonl)),
    "csv, spec": Kind("a.csv", csv, partial(ps.from_files, spec={"y": "int16", "half": "float32"})),
}
