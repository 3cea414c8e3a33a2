"""IDX files: arrays as they were written, damage named with its file."""

import gzip
import struct

import numpy as np
import pytest

from hpctrip.base.errors import InputError
from hpctrip.learn.data.files import read_idx

IMAGES = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)


def idx(array, magic=None):
    magic = magic or bytes([0, 0, 8, array.ndim])
    return magic + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.fixture
def file(tmp_path):
    """`file(content)`: a file with this content."""

    def write(content):
        path = tmp_path / "some-images-idx3-ubyte"
        path.write_bytes(content)
        return path

    return write


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzipped, by its content"])
@pytest.mark.parametrize("array", [IMAGES, np.zeros((0, 28, 28), np.uint8)], ids=["images", "none"])
def test_a_file_gives_its_array(file, pack, array):
    assert np.array_equal(read_idx(file(pack(idx(array))), 3), array)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (idx(IMAGES[0, 0]), "magic number is 0x00000801, expected 0x00000803"),
        (idx(IMAGES, magic=b"\0\0\x0d\x03"), "magic number is 0x00000d03, expected 0x00000803"),
        (b"", "magic number is 0x, expected 0x00000803"),
        (idx(IMAGES)[:9], "not a whole IDX file ("),
        (idx(IMAGES)[:-5], "not a whole IDX file (cannot reshape array of size 19 into shape (2,3,4))"),
        (idx(IMAGES) + b"x", "not a whole IDX file (cannot reshape array of size 25"),
        (gzip.compress(idx(IMAGES))[:-9], "truncated"),
    ],
)
def test_a_damaged_file_is_named_with_its_content(file, content, complaint):
    path = file(content)
    with pytest.raises(InputError) as error:
        read_idx(path, 3)
    assert complaint in str(error.value) and str(path) in str(error.value)
    assert error.value.faults[0].way_out
