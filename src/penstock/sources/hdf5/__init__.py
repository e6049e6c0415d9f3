"""HDF5 files: datasets by path, and their types as NumPy's."""
