"""`--feature NAME=KIND`: what is in TFRecords, as a command says it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import click

from penstock.core.spec import ArraySpec
from penstock.sources.reading.parts import check_names
from penstock.sources.tfrecord.features import (
    Feature,
    FixedFeature,
    ImageFeature,
    SequenceFeature,
    TensorFeature,
    VarFeature,
)

_KIND = re.compile(r"(?:(tensor|sequence):)?(\w+)(?:\[([\d?,\s]*)\])?")
_IMAGE = re.compile(r"image(?::(\d+),(\d+))?(:grey)?")
_KINDS = (
    "int64 (one number), float32[100] (a shape), int64[?] (any number of them), bytes, image, image:224,224, "
    "tensor:float32[3,3] (of tf.io.serialize_tensor) or sequence:float32[3] (steps of a SequenceExample)"
)


def parse(texts: Sequence[str]) -> dict[str, Feature]:
    """Return the features that flags name.

    >>> parse(["y=int64", "x=float32[2,3]", "w=int64[?]"])["x"].shape
    (2, 3)
    """
    found = {}
    for text in texts:
        name, _, kind = text.partition("=")
        feature = _feature(kind.strip()) if name and kind else None
        if feature is None:
            raise click.UsageError(
                f"--feature must be NAME=KIND, where KIND is {_KINDS}, got {text!r}."
            )
        found[name.strip()] = feature
    return found


def _feature(kind: str) -> Feature | None:
    image = _IMAGE.fullmatch(kind)
    if image is not None:
        size = (int(image[1]), int(image[2])) if image[1] else None
        return ImageFeature(size, channels=1 if image[3] else 3)
    match = _KIND.fullmatch(kind)
    if match is None:
        return None
    how, dtype = match[1], {"bytes": bytes, "str": str}.get(match[2], match[2])
    if isinstance(dtype, str):
        parsed_dtype("--feature: the dtype", dtype)
    sizes = [part.strip() for part in (match[3] or "").split(",") if part.strip()]
    if not all(size == "?" or size.isdecimal() for size in sizes):
        return None
    shape = tuple(None if size == "?" else int(size) for size in sizes)
    if how == "tensor":
        return TensorFeature(shape, dtype)
    if how == "sequence":
        return SequenceFeature(shape, dtype)
    if shape == (None,):
        return VarFeature(dtype)
    return (
        FixedFeature([size for size in shape if size is not None], dtype)
        if None not in shape
        else None
    )


def parsed_dtype(flag: str, text: str) -> str:
    """Return the name of a dtype, or raise with the flag that it was given to."""
    try:
        ArraySpec((), text)
    except (TypeError, ValueError):
        raise click.UsageError(
            f"{flag} must be such as float32, uint8 or int64, got {text!r}."
        ) from None
    return text


def chosen(known: Mapping[str, Feature], nest: Any, file: str) -> Any:
    """Return a nest of names as a nest of the features with these names."""
    if isinstance(nest, str):
        check_names(file, [nest], known)
        return replace(known[nest], name=nest)
    if isinstance(nest, Mapping):
        return {key: chosen(known, value, file) for key, value in nest.items()}
    return tuple(chosen(known, one, file) for one in nest)
