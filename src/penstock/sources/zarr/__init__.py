"""Zarr stores, versions 2 and 3."""
