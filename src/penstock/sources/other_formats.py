"""What to do with files whose endings tell no format that is read here."""

from penstock.io.location import Location

_UNPACKED_BY = {
    ".zip": "unzip",
    ".gz": "gunzip",
    ".bz2": "bunzip2",
    ".xz": "unxz",
    ".zst": "unzstd",
    ".lz4": "unlz4",
}
_FORMATS = {
    ".pq": "parquet",
    ".ipc": "arrow",
    ".tab": "csv",
    ".psv": "csv",
    ".nc": "hdf5",
    ".hdf": "hdf5",
    ".log": "text",
    ".md": "text",
}
"""Other endings of formats that are read."""
_READERS = {
    ".pt": "torch.load({})",
    ".pth": "torch.load({})",
    ".pkl": "pandas.read_pickle({})",
    ".pickle": "pandas.read_pickle({})",
    ".joblib": "joblib.load({})",
    ".xlsx": "pandas.read_excel({})",
    ".xls": "pandas.read_excel({})",
    ".ods": "pandas.read_excel({})",
    ".orc": "pandas.read_orc({})",
    ".dta": "pandas.read_stata({})",
    ".sas7bdat": "pandas.read_sas({})",
    ".sav": "pandas.read_spss({})",
    ".xml": "pandas.read_xml({})",
    ".html": "pandas.read_html({})[0]",
    ".mat": "scipy.io.loadmat({})['x']",
    ".safetensors": "safetensors.numpy.load_file({})",
}
"""What reads a file into memory, for from_arrays."""
_MEDIA = (".mp4", ".avi", ".mov", ".mkv", ".webm", ".wav", ".mp3", ".flac", ".ogg", ".dcm", ".heic")


def cure_of(location: Location) -> str:
    """Return what to do with a file, by its ending; '' if nothing better is known than to name its format."""
    ending, path = location.suffix, repr(str(location))
    if location.name.lower().endswith((".json", ".json.gz")):
        cure = 'Give format="jsonl" if each of its lines is an object'
        if ending == ".gz":
            return f"{cure}."
        lines = f"{location.name[: -len(ending)]}.jsonl"
        return f"{cure}; a list of objects becomes such lines by jq -c '.[]' {location.name} > {lines}."
    if ending in _UNPACKED_BY:
        return f"Unpack it once: {_UNPACKED_BY[ending]} {location.name}."
    if ending in _FORMATS:
        return f'Give format="{_FORMATS[ending]}".'
    if ending in _READERS:
        return f"Read it into memory: ps.from_arrays({_READERS[ending].format(path)})."
    if ending in (".arrayrecord", ".array_record"):
        return "ArrayRecord is not read: write it as TFRecord, for ps.from_tfrecord."
    if ending in _MEDIA:
        return (
            "Decode it by a function: ps.from_arrays([str(path) for path in paths]).map(function)."
        )
    return ""
