"""What messages say to programs, said to who types a command: flags in place of the arguments of functions."""

import re

_MEMORY = r"with_options\(memory=([^)]*)\)"
# In turn, so that longer ones come first. What stands behind "\n  wrong:" is code, and left out by `one_line`.
_WORDS = (
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
    (r"\bstorage_options=", "--storage-options "),
    (r"from_(?:files|tfrecord)\(\.\.\., on_error='skip'\) (\w+)", r"--skip-bad \1"),
    (r"\b(?:with_options\()?on_error=['\"]skip['\"]\)?", "--skip-bad"),
    (r"\bleave on_error out", "leave --skip-bad out"),
    (r"\bWrite from_tfrecord\(\.\.\., index=False\)", "Give --no-index"),
    (r"\bindex=False", "--no-index"),
    (r"from_(?:files|tfrecord)\(\.\.\., verify=False\)", "--no-verify"),
    (r"from_files\(\.\.\., size=\((\d+), (\d+)\)\)", r"--size \1,\2"),
    (r"\bsize=\((\d+), (\d+)\)", r"--size \1,\2"),
    (r"\bfeatures=\{'(\w+)': ps\.SequenceFeature.*?\.\.\.\}", r"--feature 'NAME=sequence:float32[3]'"),
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
    own = (
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
