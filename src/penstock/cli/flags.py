"""What messages say to programs, said to who types a command: flags in place of the arguments of functions."""

import ast
import contextlib
import json
import re
from collections.abc import Callable


def _as_json(found: re.Match[str]) -> str:
    """Return the flag for a dict that a message names; it may have dots where a user has values."""
    text = found[1]
    with contextlib.suppress(ValueError, SyntaxError):
        text = json.dumps(ast.literal_eval(text.replace("...", "'...'")))
    return f"--storage-options '{text}'"


def _as_shape(found: re.Match[str]) -> str:
    """Return a spec as commands show it."""
    return f"{found[2]} ({found[1].rstrip(',').replace('None', '?')})"


_MEMORY = r"with_options\(memory=([^)]*)\)"
# In turn, so that longer ones come first. What stands behind "\n  wrong:" is code, and left out by `one_line`.
_WORDS: "tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...]" = (
    (r"\bwrite\(format=[\"'](\w+)[\"']\)", r"writing \1"),
    (r"\bwrite overwrite=True", "give --overwrite"),
    (r"\boverwrite=True", "--overwrite"),
    (rf"\bWrite {_MEMORY}", r"Give --memory \1"),
    (rf"\b{_MEMORY}", r"--memory \1"),
    (r"\bspec is for raw, CSV and JSON Lines files", "--dtype is for raw files"),
    (r"\bspec must be a dict of columns, got ArraySpec.*", "--dtype is for raw files."),
    (r"\ba raw file needs the spec of its rows, of a fixed size, got None", "a raw file needs --dtype, and --shape"),
    (r"\bCheck the spec, or", "Check --dtype and --shape, or"),
    (r"\bshard_rows=(\.\.\.|\d+)", "--shard-rows"),
    (r"\bshard_rows\b", "--shard-rows"),
    (r"\bbatch_size\b", "--batch-size"),
    (r"\bstorage_options=(\{(?:[^{}]|\{[^{}]*\})*\})", _as_json),
    (r"\bstorage_options=", "--storage-options "),
    (r"from_files\([^)]*\) finds \w+ and types in the other rows, and \S+ skips this one", "--skip-bad skips this row"),
    (r"from_(?:files|tfrecord)\(\.\.\., on_error='skip'\) (\w+)", r"--skip-bad \1"),
    (r"\b(?:with_options\()?on_error=['\"]skip['\"]\)?", "--skip-bad"),
    (r"\bleave on_error out", "leave --skip-bad out"),
    (r"\bWrite from_tfrecord\(\.\.\., index=False\)", "Give --no-index"),
    (r"\bindex=False", "--no-index"),
    (r"from_(?:files|tfrecord)\(\.\.\., verify=False\)", "--no-verify"),
    (r"from_files\(\.\.\., size=\((\d+), (\d+)\)\)", r"--size \1,\2"),
    (r"\bsize=\((\d+), (\d+)\)", r"--size \1,\2"),
    (r"\bfeatures=\{'(\w+)': ps\.SequenceFeature.*?\.\.\.\}", r"--feature 'NAME=sequence:float32[3]'"),
    (r"\bWrite ps\.SequenceFeature for it", "Give --feature 'NAME=sequence:float32[3]'"),
    (r"\bWrite ps\.FixedFeature or ps\.VarFeature for it", "Give --feature NAME=int64, or NAME=int64[?]"),
    (r"\bGive features=\{\.\.\.\}, or raw=True(?: for bytes)?", "Say what is in them: --feature NAME=int64; or --raw"),
    (r"\bfeatures=\{\.\.\.\}", "--feature NAME=int64"),
    (r"\braw=True", "--raw"),
    (r"\bcompression='none'", "--compression none"),
    (r"from_files\(\{'x': 'x\.npy', 'y': 'y\.npy'\}\)", "x=x.npy y=y.npy"),
    (r"Files side by side are a dict:", "Files side by side:"),
    (r"\.shuffle\(window=['\"]?(\w+)['\"]?\)", r"--window \1"),
    (r"\.shuffle\(exact=True\)|\bexact=True", "--exact"),
    (r"shuffle\(--exact\)", "--exact"),
    (r"\.cache\(['\"]folder['\"]\)(?:\.shuffle\(\))?", "--cache FOLDER"),
    (r"Write \.cache\(\)\.shuffle\(\)", "Give --cache FOLDER"),
    (r"\bwith_options\(scratch=\.\.\.\)", "--scratch FOLDER"),
    (r"\bwith_options\(processes=0\)", "--processes 0"),
    (r"\bengine=['\"](\w+)['\"]", r"--engine \1"),
    (r"\bgive fit more epochs", "give more --epochs"),
    (r"with \.map\(\.\.\.\) before \.batch\(\.\.\.\)", "in Python, with ds.map(...), and train or convert there"),
    (r"\bseparator=\.\.\.", "--separator"),
    (r"\bdecimal='(.)'", r"--decimal \1"),
    (r"\b(separator|decimal) is for CSV files, got \w+=", r"--\1 is for CSV files, got "),
    (r"\b(separator|decimal|scratch) must\b", r"--\1 must"),
    (r"\bsize is for images", "--size is for images"),
    (r'\bwrite format="npy", which holds (every dtype|any row)(?:, or change it first with map)?',
     r"write a folder of .npy shards (a name without an ending), which holds \1"),
    (r"\b(map it to|leave it out with map|make a dict of its columns with map)\b", r"in Python, \1"),
    (r"\bthe loss of this model needs labels, and batches have none.*", "the loss of the model needs a --y NAME."),
    (r"\bthe dataset has no batches; check take, skip, filter and the files", "the files have no rows"),
    (r"\bthis state belongs to another pipeline: it has fingerprint .* must be those of the run that saved it\.",
     "it belongs to a run with other files, fields or flags: give those again, or another --resume folder."),
    (r"; to read a stream, use from_generator", ""),
    (r"\b(one of npy, [\w, ]*\btar)\b", r"\1, tfrecord"),
    (r"\bArraySpec\(\(([^()]*)\), ([\w<>\[\]]+)\)", _as_shape),
    (r"\bthe same call\b", "the same command"),
    (r"\bThe same call\b", "The same command"),
)  # fmt: skip


def flag_words(
    text: str, *, format_flag: str = "--format", fields_flag: str = "--fields A,B"
) -> str:
    """Return a message of the library with flags in place of arguments.

    `format_flag` and `fields_flag` are what the command calls the format of what it reads, and the fields.

    >>> flag_words("exists already: write overwrite=True to replace it.")
    'exists already: give --overwrite to replace it.'
    """
    own: tuple[tuple[str, str], ...] = (
        (r"\bformat must be", f"{format_flag} must be"),
        (r"\bformat=(?=['.])", f"{format_flag} "),
        (r"\bfields=\(\.\.\.\)", fields_flag),
        (r": leave fields out\.", "." if "and" in fields_flag else ": leave --fields out."),
    )
    for argument, flag in (*_WORDS, *own):
        text = re.sub(argument, flag, text)
    return text


def one_line(text: str) -> str:
    r"""Return a message in one line, without the code that shows programs what is wrong and right.

    >>> one_line("shuffle takes no number.\n  wrong: ds.shuffle(9)\n  right: ds.shuffle()")
    'shuffle takes no number.'
    """
    kept = re.split(r"\n\s+(?:wrong|right):", text)[0]
    return " ".join(kept.split())
