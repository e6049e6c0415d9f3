"""The first mistakes of new users: each is an error, or a warning, that says what to write instead."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import torch

import penstock as ps

X, Y = np.zeros((10, 3), np.float32), np.arange(10)
PAIR = ps.from_arrays((X, Y))
NAMED = ps.from_arrays({"x": X, "y": Y})


def batches() -> Iterator[Any]:
    """Yield batches where rows were declared."""
    yield X[:4], Y[:4]


def yields(x: Any, y: Any) -> Iterator[Any]:
    """Yield from a function of map."""
    yield x, y


async def waits(x: Any, y: Any) -> Any:
    """Return a coroutine from a function of map."""
    return x, y


ROW = (ps.ArraySpec((3,), "float32"), ps.ArraySpec((), "int64"))

CALLS: dict[str, tuple[Callable[[], Any], str]] = {
    "arrays as arguments": (
        lambda: ps.from_arrays(X, Y),
        r"Several arrays are one nest: from_arrays\(\(x, y\)\)",
    ),
    "labels by name": (lambda: ps.from_arrays(X, labels=Y), r"from_arrays\(\(x, labels\)\)"),
    "arrays by name": (
        lambda: ps.from_arrays(x=X, y=Y),
        r"by name from_arrays\(\{'x': x, 'y': y\}\)",
    ),
    "columns of a table": (
        lambda: ps.from_arrays({"a": X, "b": Y}, fields=("a",)),
        r"from_arrays has no argument 'fields': choose columns before",
    ),
    "a buffer size": (lambda: PAIR.shuffle(buffer_size=1024), r"Write shuffle\(seed=0\)"),
    "a buffer size by position": (lambda: PAIR.shuffle(1024), r"right: ds.shuffle\(seed=0\)"),
    "a frozen shuffle": (
        lambda: PAIR.shuffle(reshuffle_each_iteration=False),
        r"shuffle\(seed=0\).cache\(\) keeps the first",
    ),
    "parallel calls": (
        lambda: PAIR.map(lambda x, y: x, num_parallel_calls=tf.data.AUTOTUNE),
        r"with_options\(threads=..., processes=...\)",
    ),
    "parallel calls of batch": (lambda: PAIR.batch(2, num_parallel_calls=2), "found by themselves"),
    "parallel calls by position": (
        lambda: PAIR.map(lambda x, y: x, 4),
        "names: map_func, seed, spec",
    ),
    "parallel calls of flat_map": (
        lambda: PAIR.flat_map(lambda x, y: x, num_parallel_calls=2),
        "flat_map has no argument 'num_parallel_calls': leave it out",
    ),
    "the order of flat_map": (
        lambda: PAIR.flat_map(lambda x, y: x, deterministic=True),
        "order that seed and chain give",
    ),
    "parallel calls of interleave": (
        lambda: ps.interleave([batches], ROW, num_parallel_calls=2),
        "each generator has a thread of its own",
    ),
    "the cycle of interleave": (
        lambda: ps.interleave([batches], ROW, cycle_length=4),
        "'cycle_length': leave it out; all of them are open at once",
    ),
    "the block of interleave": (
        lambda: ps.interleave([batches], ROW, block_length=4),
        "'block_length': leave it out; which one is next follows from seed=",
    ),
    "the order of interleave": (
        lambda: ps.interleave([batches], ROW, deterministic=True),
        "order that seed and chain give",
    ),
    "interleave without a spec": (
        lambda: ps.interleave([batches]),
        "interleave needs 'spec': write spec=, a nest of ps.ArraySpec",
    ),
    "a header": (lambda: ps.from_files("a.csv", header=None), "put a line with the names above"),
    "names of columns": (
        lambda: ps.from_files("a.csv", names=["a"]),
        "first line .* has the names",
    ),
    "some columns": (lambda: ps.from_files("a.csv", usecols=["a"]), r"write fields=\('a', 'b'\)"),
    "a test size": (lambda: PAIR.split(test_size=0.1), r"train, test = ds.split\(0.9\)"),
    "a split that shuffles": (
        lambda: PAIR.split(0.9, shuffle=True),
        r"train.shuffle\(seed=0\) behind it",
    ),
    "a target distribution": (
        lambda: PAIR.resample(by=1, target_dist=[0.5, 0.5]),
        r"write weights=\{0: 1, 1: 3\}",
    ),
    "rows by number": (lambda: PAIR[0], r"next\(iter\(ds.skip\(i\)\)\) is row i"),
    "a DataLoader": (
        lambda: next(iter(torch.utils.data.DataLoader(PAIR, batch_size=2, shuffle=True))),
        r"right: ds.shuffle\(seed=0\).batch\(32\).to_torch\(\)",
    ),
    "a DataLoader of a feed": (
        lambda: next(iter(torch.utils.data.DataLoader(PAIR.batch(2).to_torch(), batch_size=None))),
        r"it takes the place of a DataLoader\.\n  wrong: .*batch_size=None\)\n  right: ds.batch\(32\).to_torch\(\)",
    ),
    "a feed where rows come": (
        lambda: torch.utils.data.Subset(PAIR.batch(2).to_torch(), [0])[0],
        r"no batches by number, got \[0\].*(.|\n)*whose get_train_dataloader returns it",
    ),
    "padded shapes": (
        lambda: PAIR.padded_batch(4, padded_shapes=([None], [])),
        "padded to its longest row",
    ),
    "a signature": (
        lambda: ps.from_generator(batches, output_signature=ROW),
        "write spec=, a nest of ps.ArraySpec",
    ),
    "types": (lambda: ps.from_generator(batches, output_types=(tf.int64,)), "write spec="),
    "a TensorSpec": (
        lambda: ps.from_generator(batches, tf.TensorSpec((None, 3), tf.float32)),
        r'write ps.ArraySpec\(\(None, 3\), "float32"\)',
    ),
    "a TensorSpec of text": (
        lambda: PAIR.map(lambda x, y: b"", spec=tf.TensorSpec((), tf.string)),
        r'write ps.ArraySpec\(\(\), "bytes"\)',
    ),
    "a dtype of TensorFlow": (
        lambda: ps.ArraySpec((3,), tf.float32),
        r'dtype must be one of NumPy\'s.* got tf.float32; write "float32"\.',
    ),
    "a dtype of text": (lambda: ps.ArraySpec((), tf.string), r'got tf.string; write "bytes"\.'),
    "a dtype of PyTorch": (
        lambda: ps.ArraySpec((3,), torch.bfloat16),
        r'got torch.bfloat16; write "bfloat16"\.',
    ),
    "a dtype misspelt": (
        lambda: ps.ArraySpec((3,), "flot32"),
        r'one of NumPy\'s, such as "float32", bytes or str, got \'flot32\'\.$',
    ),
    "no spec": (lambda: ps.from_generator(batches), r"ps.spec_of\(row\) makes it from an example"),
    "a row where its parts come": (
        lambda: PAIR.map(lambda row: row),
        r"a row is a tuple of 2, whose parts come as 2 arguments. It takes \(row\)",
    ),
    "parts where a dict comes": (
        lambda: NAMED.map(lambda x, y: x),
        r"a row is a dict \(with 'x', 'y'\), which comes as one argument",
    ),
    "no place for the generator": (
        lambda: PAIR.map(lambda x, y: x, seed=0),
        "seed= adds one, a generator of random numbers",
    ),
    "a generator without a seed": (
        lambda: PAIR.map(lambda x, y, rng: x),
        r"It takes \(x, y, rng\). If the last is a generator of random numbers, give seed=0\.",
    ),
    "a predicate of a row": (
        lambda: PAIR.filter(lambda row: True),
        "whose parts come as 2 arguments",
    ),
    "a list of fields": (lambda: PAIR.map(lambda x, y: [x, y]), "return a tuple: return a, b"),
    "yield in a map": (lambda: PAIR.map(yields), "got generator.* is one for flat_map"),
    "an async map": (lambda: PAIR.map(waits), "got coroutine.* can't be async: return the value"),
    "nothing returned": (lambda: PAIR.map(lambda x, y: None), "forget to return something"),
    "an option misspelt": (lambda: PAIR.with_options(mem="1GB"), r"did you mean memory\?"),
    "tf.data's name of a maker": (lambda: ps.from_tensor_slices((X, Y)), r"write ps.from_arrays"),
    "tf.data's name of a reader": (lambda: ps.TFRecordDataset("a"), "write ps.from_tfrecord"),
    "a method of tf.data": (lambda: PAIR.as_numpy_iterator(), "for batch in ds"),
    "a method that is a function": (lambda: PAIR.concatenate(PAIR), r"ps.concatenate\(a, b\)"),
    "torch's arguments": (lambda: PAIR.to_torch(batch_size=32), r"ds.batch\(32\)"),
    "workers": (lambda: PAIR.batch(2).to_torch(num_workers=4), "found by themselves"),
    "a device of JAX": (
        lambda: PAIR.batch(2).to_jax(device="cpu"),
        r"write sharding=jax.devices\(\)\[0\]",
    ),
    "JAX's batches": (lambda: PAIR.to_jax(batch_size=32), r"ds.batch\(32\)"),
    "JAX's order": (lambda: PAIR.batch(2).to_jax(shuffle=True), r"ds.shuffle\(seed=0\)"),
    "statistics without an end": (
        lambda: PAIR.repeat().statistics(),
        r"statistics takes a pass over all rows, and the dataset never ends: leave repeat\(\) out",
    ),
    "a sum without an end": (
        lambda: PAIR.repeat().reduce(0, lambda total, row: total),
        r"reduce takes a pass over all rows.* or say how many with take\(n\)",
    ),
    "labels with an axis more": (
        lambda: ps.from_arrays((X, Y[:, None])).split(0.9, stratify=1),
        r"got rows of shape \(1,\).\n  add one first: .map\(lambda x, y: \(x, y, y\[0\]\)\)",
    ),
    "labels that are not in the rows": (
        lambda: PAIR.split(0.9, stratify=np.arange(10_000)),
        r"got array\(\[ .{40,60}; labels that are .* by ps.zip\(ds, .*: then write stratify=1\.$",
    ),
    "many names of a field": (
        lambda: PAIR.split(0.9, by=tuple(range(10_000))),
        r"got \(0, 1, 2, .{60,80}$",
    ),
    "one-hot labels": (
        lambda: ps.from_arrays((X, X)).split(0.9, stratify=1),
        r"as for one-hot labels: .map\(lambda x, y: \(x, y, y.argmax\(\)\)\)",
    ),
    "a list of arrays": (lambda: ps.from_arrays([X, Y]), r"are a tuple: from_arrays\(\(x, y\)\)"),
    "a list of inputs": (
        lambda: ps.from_arrays(([X, X], Y)),
        r"right: from_arrays\(\(\(a, b\), y\)\)",
    ),
    "a split by scikit-learn's name": (
        lambda: PAIR.train_test_split(0.1),
        r"write train, valid = ds.split\(0.9, seed=0\)\.$",
    ),
    "random numbers, as in Grain": (
        lambda: PAIR.random_map(len),
        r"write ds.map\(function, seed=0\)",
    ),
    "rows that are unique": (
        lambda: PAIR.unique(),
        "all rows that were seen would have to be held",
    ),
    "a scan": (
        lambda: PAIR.scan(0, max),
        r"write a generator, ps.from_generator\(function, spec\)",
    ),
    "a column with another name": (
        lambda: NAMED.rename_column("x", "z"),
        r"write ds.map\(lambda row: \{'new': row\['old'\]\}\)",
    ),
    "some rows": (lambda: PAIR.select([1, 2]), r"write ds.skip\(a\).take\(b - a\)"),
    "a format": (lambda: PAIR.with_format("torch"), r"ds.batch\(32\).to_torch\(\)"),
    "an iterator of Grain": (lambda: PAIR.to_iter_dataset(), "leave it out: for row in ds"),
    "a decoder": (lambda: PAIR.decode("rgb"), "leave it out: .* decoded by their extensions"),
    "a WebDataset": (lambda: ps.WebDataset("a.tar"), r"write ps.from_files\('\*.tar'\)"),
    "one row of tensors": (lambda: ps.from_tensors(X), "whose first axis are the rows"),
    "a CSV in chunks": (
        lambda: ps.from_files("a.csv", chunksize=9),
        r"no argument 'chunksize': .* write ds.batch\(size\)",
    ),
    "words for what is missing": (
        lambda: ps.from_files("a.csv", na_values=["?"]),
        r"read a column with other words as text, spec=\{'column': str\}",
    ),
    "dates": (
        lambda: ps.from_files("a.csv", parse_dates=["day"]),
        r"write spec=\{'day': 'datetime64\[D\]'\}",
    ),
    "an encoding": (lambda: ps.from_files("a.csv", encoding="latin1"), "iconv -f latin1 -t utf-8"),
    "rows left out": (lambda: ps.from_files("a.csv", skiprows=1), r"by ds.skip\(count\)"),
    "the first rows": (lambda: ps.from_files("a.csv", nrows=9), r"write ds.take\(count\)"),
    "tf.data's separator": (lambda: ps.from_files("a.csv", field_delim=";"), "write separator="),
    "batches of files": (lambda: ps.from_files("a.csv", batch_size=9), r"dataset: ds.batch\(32\)"),
    "batches of records": (lambda: ps.from_tfrecord("a", batch_size=9), r"dataset: ds.batch\(32\)"),
    "batches that a function makes": (
        lambda: PAIR.batch(2, collate_fn=len),
        r"ds.padded_batch\(32\) to pad them, and ds.batch\(32\).map\(f\) to change batches",
    ),
    "batches by workers": (lambda: PAIR.batch(2, num_workers=4), "found by themselves"),
    "classes without a field": (lambda: PAIR.resample(), "^resample needs 'by': write by='label'"),
    "packs without a length": (
        lambda: PAIR.pack(),
        "^pack needs 'length': it takes length, method",
    ),
    "a part without a count": (lambda: PAIR.take(), "^take needs 'count': it takes count"),
    "a shard without a number": (lambda: PAIR.shard(2), "^shard needs 'index': it takes"),
    "nothing to apply": (lambda: PAIR.apply(), "^apply needs 'transformation_func'"),
    "a dataset by its class": (
        lambda: ps.Dataset(X),
        r"is made by a function: write ps.from_arrays\(",
    ),
    "a dataset of nothing": (lambda: ps.Dataset(), r"ps.from_files\(paths\)"),
    "a cache that is switched on": (
        lambda: PAIR.cache(True),
        "path must be a str or a path, got True",
    ),
    "a dtype of TensorFlow in a feature": (
        lambda: ps.FixedFeature((), tf.int64),
        r'^dtype of a FixedFeature must be one of .*, got tf.int64; write "int64"\.$',
    ),
    "a dtype of text in a feature": (
        lambda: ps.VarFeature(tf.string),
        r'got tf.string; write "bytes"\.$',
    ),
    "a dtype of PyTorch in a feature": (
        lambda: ps.SequenceFeature((), torch.float32),
        r'got torch.float32; write "float32"\.$',
    ),
    "a dtype of PyTorch in a tensor": (
        lambda: ps.TensorFeature((), torch.bfloat16),
        r'got torch.bfloat16; write "bfloat16"\.$',
    ),
    "a dtype that no feature has": (
        lambda: ps.FixedFeature((), torch.complex64),
        r"got torch.complex64\.$",
    ),
    "a dtype of a feature misspelt": (
        lambda: ps.VarFeature("flot32"),
        r"dtype of a VarFeature must be one of .*, got 'flot32'\.$",
    ),
    "a feature of any length": (
        lambda: ps.FixedFeature((None,), np.int64),
        r'write VarFeature\("int64"\) for a list of any length',
    ),
    "a list of names": (
        lambda: ps.from_files("a.csv", fields=["a", "b"]),
        r"^fields must be a name, a tuple or a dict, got \['a', 'b'\]; write fields=\('a', 'b'\)\.$",
    ),
    "a list of names in a nest": (
        lambda: ps.from_files("a.csv", {"x": ["a", "b"], "y": "c"}),
        r"got \['a', 'b'\]; write fields=\{'x': \('a', 'b'\), 'y': 'c'\}\.$",
    ),
    "a list of many names": (
        lambda: ps.from_files("a.csv", [f"column {number}" for number in range(100)]),
        r"got \['column 0', .{50,70}; write fields=tuple\(names\)\.$",
    ),
    "an array of names": (
        lambda: ps.from_files("a.csv", np.array(["a", "b"])),
        r"got array\(\['a', 'b'\], dtype='<U1'\); write fields=\('a', 'b'\)\.$",
    ),
    "no name among names": (lambda: ps.from_files("a.csv", ("a", None)), r"arrays, got None\.$"),
    "a column by its number": (
        lambda: ps.from_files("a.csv", (0, 1)),
        r"must be names of arrays, got 0; write fields=\('0', '1'\)\.$",
    ),
    "a zip of a tuple": (
        lambda: ps.zip((PAIR, PAIR)),
        r"^zip needs datasets, got tuple for input 0; write ps.zip\(a, b\), or ps.zip\(\*datasets\)\.$",
    ),
    "a zip of a list": (lambda: ps.zip([PAIR, PAIR]), r"got list .* or ps.zip\(\*datasets\)"),
    "a zip of a generator": (
        lambda: ps.zip(one for one in (PAIR, PAIR)),
        r"got generator .* or ps.zip\(\*datasets\)",
    ),
    "a zip of lists of arrays": (lambda: ps.zip([X, Y]), r"arrays become one with ps.from_arrays"),
    "a zip of files": (lambda: ps.zip("x.npy", "y.npy"), r"files become one with ps.from_files"),
    "a zip of dicts": (
        lambda: ps.zip({"x": PAIR}, {"y": PAIR}),
        r"are one dict: ps.zip\(\{'x': a, 'y': b\}\)",
    ),
    "a zip within a zip": (
        lambda: ps.zip({"a": PAIR, "b": (PAIR, PAIR)}),
        r"got tuple for input 'b'; make it one first, with ps.zip\(\*datasets\)",
    ),
    "a list of datasets to concatenate": (
        lambda: ps.concatenate([PAIR, PAIR]),
        r"write ps.concatenate\(a, b\), or ps.concatenate\(\*datasets\)\.$",
    ),
    "a dict of datasets to concatenate": (
        lambda: ps.concatenate({"a": PAIR}),
        r"write ps.concatenate\(\*datasets.values\(\)\)\.$",
    ),
    "datasets to concatenate by name": (
        lambda: ps.concatenate(datasets=[PAIR, PAIR]),
        r"they are arguments: concatenate\(a, b\)",
    ),
    "a dataset to mix": (
        lambda: ps.mix(PAIR),
        r"needs a list of datasets, got Dataset; write ps.mix\(\[a, b\]\)",
    ),
    "a dict of datasets to mix": (
        lambda: ps.mix({"a": PAIR}),
        r"write ps.mix\(\[\*datasets.values\(\)\]\)",
    ),
    "a feature of TensorFlow": (
        lambda: ps.from_tfrecord(__file__, {"x": tf.io.FixedLenFeature((3,), tf.float32)}),
        r'write ps.FixedFeature\(\(3,\), "float32"\)',
    ),
    "a list of TensorFlow": (
        lambda: ps.from_tfrecord(__file__, {"x": tf.io.VarLenFeature(tf.string)}),
        r'write ps.VarFeature\("bytes"\)',
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_cannot_be_says_what_to_write(name: str) -> None:
    call, message = CALLS[name]
    with pytest.raises((TypeError, ValueError, AttributeError), match=message):
        call()


READS: dict[str, tuple[Callable[[], Any], str]] = {
    "a generator of batches": (
        lambda: ps.from_generator(batches, ROW),
        r'batches \(this one of 4 rows\), give rows_per_item="many"',
    ),
    "rows that differ in shape": (
        lambda: PAIR.map(lambda x, y: (x, y) if y < 3 else (x[:2], y)),
        r'was inferred from row 0.* spec=\(ps.ArraySpec\(\(None,\), "float32"\), ps.ArraySpec\(\(\), "int64"\)\)',
    ),
    "rows that differ in dtype": (
        lambda: NAMED.map(lambda row: {"a": 1 if row["y"] < 3 else 2.5}),
        r'inferred from row 0. If rows may be like that, give spec=\{"a": ps.ArraySpec\(\(\), "float64"\)\}\.$',
    ),
    "a number too large": (
        lambda: PAIR.map(lambda x, y: 300, spec=ps.ArraySpec((), "int8")),
        r'ArraySpec\(\(\), "int64"\); else return np.clip\(value, -128, 127\).astype\(\'int8\'\)\.$',
    ),
    "a number below zero": (
        lambda: NAMED.map(lambda row: {"a": -1}, spec={"a": ps.ArraySpec((), "uint8")}),
        r'spec=\{"a": ps.ArraySpec\(\(\), "int64"\)\}; else return np.clip\(value, 0, 255\).astype\(\'uint8\'\)\.$',
    ),
    "numbers that are no truths": (
        lambda: PAIR.map(lambda x, y: 2, spec=ps.ArraySpec((), "bool")),
        r"; else return np.asarray\(value\) != 0\.$",
    ),
    "floats that are too fine": (
        lambda: PAIR.map(lambda x, y: x.astype("float64"), spec=ps.ArraySpec((3,), "float32")),
        r'ArraySpec\(\(3,\), "float64"\); else return value.astype\(\'float32\'\)\.$',
    ),
    "a list of floats": (
        lambda: PAIR.map(lambda x, y: [0.1, 0.2], spec=ps.ArraySpec((2,), "float32")),
        r"; else return np.asarray\(value\).astype\('float32'\)\.$",
    ),
    "a generator of numbers too large": (
        lambda: ps.from_generator(lambda: iter([300]), ps.ArraySpec((), "int8")),
        r"; else yield np.clip\(value, -128, 127\).astype\('int8'\)\.$",
    ),
    "a generator of blocks of numbers too large": (
        lambda: ps.from_generator(
            lambda: iter([np.full(3, 300)]), ps.ArraySpec((), "int8"), rows_per_item="many"
        ),
        r'give spec=ps.ArraySpec\(\(\), "int64"\); else yield np.clip',
    ),
    "rows that differ in their nest": (
        lambda: PAIR.map(lambda x, y: (x, {"a": y}) if y < 3 else x),
        r"returned a nest \*, but \(\*, \{'a': \*\}\) was inferred from row 0. All rows must have the same nest\.",
    ),
    "a nest that is not as declared": (
        lambda: PAIR.map(lambda x, y: x, spec=ROW),
        r"returned a nest \*, but \(\*, \*\) is declared. Return that, or change spec=",
    ),
    "nothing returned for a later row": (
        lambda: PAIR.map(lambda x, y: (x, y) if y < 3 else None),
        r"row 3: .* was inferred from row 0. Did it forget to return something\?",
    ),
    "no array returned for a later row": (
        lambda: PAIR.map(lambda x, y: x if y < 3 else None),
        r"row 3: returned for field 'value' None, but .* Did it forget to return something\?",
    ),
    "no text returned for a later row": (
        lambda: PAIR.map(lambda x, y: "text" if y < 3 else None),
        r"row 3: returned for field 'value' None, but .* Did it forget to return something\?",
    ),
    "a list returned for a later row": (
        lambda: PAIR.map(lambda x, y: (x, y) if y < 3 else [x, y]),
        "row 3: .*A list is one field; for several, return a tuple: return a, b",
    ),
    "a list where one array is due": (
        lambda: PAIR.map(lambda x, y: x if y < 3 else [x, y]),
        "a list whose parts differ in shape, but .* return a tuple: return a, b",
    ),
    "rows that differ in their dimensions": (
        lambda: PAIR.map(lambda x, y: x if y < 3 else x[None]),
        r"an array of shape \(1, 3\), but .* row 0. All rows must have its dtype, and as many dimensions",
    ),
    "text where numbers came": (
        lambda: PAIR.map(lambda x, y: 1 if y < 3 else "one"),
        r"returned for field 'value' 'one', but ArraySpec\(\(\), int64\) was inferred from row 0. All rows must",
    ),
    "a generator of lists": (
        lambda: ps.from_generator(lambda: iter([[X[0], 1]]), ROW),
        "got list. Yield a tuple: yield a, b",
    ),
    "rows that are not as declared": (
        lambda: PAIR.map(lambda x, y: x[:2], spec=ps.ArraySpec((3,), "float32")),
        r"is declared. If rows may be like that, give spec=ps.ArraySpec\(\(None,\)",
    ),
}


@pytest.mark.parametrize("by_element", [True, False])
@pytest.mark.parametrize("name", READS)
def test_rows_that_cannot_be_say_what_to_write(name: str, by_element: bool) -> None:
    """Whether rows are handed over one by one, or put into blocks."""
    make, message = READS[name]
    with pytest.raises(ps.SpecMismatchError, match=message):
        list(make() if by_element else make().filter(lambda *row: True))


def test_labels_beside_the_rows_deal_them() -> None:
    """As the error for labels that are not in the rows says."""
    labels = np.arange(10) % 2
    parts = ps.zip(PAIR, ps.from_arrays(labels)).split(0.6, stratify=1)
    assert [[int(label) for _, label in part].count(1) for part in parts] == [3, 2]


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """Return a file of one record: three floats, and the same as a serialised tensor."""
    serialised = tf.io.serialize_tensor(X[0]).numpy()
    features = {
        "floats": tf.train.Feature(float_list=tf.train.FloatList(value=X[0])),
        "tensor": tf.train.Feature(bytes_list=tf.train.BytesList(value=[serialised])),
    }
    example = tf.train.Example(features=tf.train.Features(feature=features))
    path = tmp_path / "a.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(example.SerializeToString())
    return path


def test_a_tfrecord_file_is_no_array(records: Path) -> None:
    with pytest.raises(
        ps.DataError, match=r"this is a TFRecord file. Read it with ps.from_tfrecord\("
    ):
        ps.from_files(records)


def test_a_feature_that_is_missing_is_told_with_those_that_are_there(records: Path) -> None:
    ds = ps.from_tfrecord(records, {"flots": ps.FixedFeature((3,), "float32")})
    with pytest.raises(ps.DataError, match=r"'flots' must be .* The record has 'floats', 'tensor'"):
        list(ds)


def test_a_folder_of_tfrecords_is_no_folder_of_arrays(records: Path) -> None:
    cure = (
        r"most files of this folder are TFRecords: a\.tfrecord. Read them with ps.from_tfrecord\("
    )
    with pytest.raises(ps.DataError, match=cure):
        ps.from_files(records.parent)


def test_a_serialised_tensor_is_told_as_one(records: Path) -> None:
    ds = ps.from_tfrecord(records, {"tensor": ps.FixedFeature((3,), "float32")})
    with pytest.raises(ps.DataError, match=r'declare TensorFeature\(\(3,\), "float32"\)'):
        list(ds)


def test_files_of_unlike_rows_name_the_dict_that_puts_them_side_by_side(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y)
    paths = tmp_path / "x.npy", tmp_path / "y.npy"
    with pytest.raises(ps.SpecMismatchError, match=r"from_files\(\{'x': 'x.npy', 'y': 'y.npy'\}\)"):
        ps.from_files(paths)
    ds = ps.from_files({"x": paths[0], "y": paths[1]})
    assert [int(row["y"]) for row in ds] == Y.tolist()
