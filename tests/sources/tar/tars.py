"""Tars for tests, in the layout of webdataset's ShardWriter."""

import io
import tarfile

import numpy as np
from PIL import Image


def npy(array):
    """Return the bytes of an .npy file."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def image(pixels, format="PNG"):
    """Return the bytes of an image file."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format)
    return file.getvalue()


def write_tar(path, members, format=tarfile.GNU_FORMAT):
    """Write (name, bytes) pairs as a tar."""
    with tarfile.open(path, "w", format=format) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def write_plain_tar(path, members):
    """Write (name, bytes) pairs as a tar, many times as fast as `tarfile` does."""
    info = tarfile.TarInfo("")
    template = bytearray(info.tobuf(tarfile.USTAR_FORMAT))
    template[148:156] = b"        "
    total = sum(template) - sum(template[124:136])
    with path.open("wb") as file:
        for name, data in members:
            header = template.copy()
            header[: len(name)] = name.encode()
            size = b"%011o\0" % len(data)
            header[124:136] = size
            header[148:156] = b"%06o\0 " % (total + sum(size) + sum(name.encode()))
            file.write(header + data + bytes(-len(data) % 512))
        file.write(bytes(1024))


def samples(count, start=0):
    """Return the members of plain samples: a text, a number, an array, JSON and bytes."""
    for number in range(start, start + count):
        key = f"{number:06d}"
        yield f"{key}.bin", bytes([number % 256]) * (number % 5)
        yield f"{key}.cls", f"{number}\n".encode()
        yield f"{key}.json", f'{{"n": {number}}}'.encode()
        yield f"{key}.npy", npy(np.full((2, 3), number, "f4"))
        yield f"{key}.txt", f"é{number}".encode()


def row(number):
    """Return the row that a plain sample must give."""
    return {
        "__key__": f"{number:06d}",
        "bin": bytes([number % 256]) * (number % 5),
        "cls": np.int64(number),
        "json": f'{{"n": {number}}}',
        "npy": np.full((2, 3), number, "f4"),
        "txt": f"é{number}",
    }
