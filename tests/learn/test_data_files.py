import gzip
import struct

import numpy as np
import pytest

from hpctrip.base.errors import InputError
from hpctrip.learn.data.files import read_idx, read_pair

IMAGES = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)


def idx(array, magic=None):
    magic = magic or bytes([0, 0, 8, array.ndim])
    return magic + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.fixture
def file(tmp_path):
    def write(content, name="some-images-idx3-ubyte"):
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


def test_a_plain_file_gives_its_array(file):
    assert np.array_equal(read_idx(file(idx(IMAGES)), 3), IMAGES)


def test_a_gzipped_file_is_known_by_its_content_not_its_name(file):
    assert np.array_equal(read_idx(file(gzip.compress(idx(IMAGES))), 3), IMAGES)


def test_an_empty_set_is_an_empty_array(file):
    assert read_idx(file(idx(np.zeros((0, 28, 28), np.uint8))), 3).shape == (0, 28, 28)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (idx(IMAGES[0, 0]), "magic number is 0x00000801, expected 0x00000803"),
        (idx(IMAGES, magic=b"\0\0\x0d\x03"), "magic number is 0x00000d03, expected 0x00000803"),
        (b"", "magic number is 0x, expected 0x00000803"),
        (idx(IMAGES)[:9], "header ends after 9 of 16 bytes"),
        (idx(IMAGES)[:-5], "19 bytes of data, expected 24 for 2 x 3 x 4"),
        (idx(IMAGES) + b"x", "25 bytes of data, expected 24"),
        (gzip.compress(idx(IMAGES))[:-9], "truncated"),
        (gzip.compress(idx(IMAGES))[:-8] + b"\0" * 8, "damaged"),
        (gzip.compress(idx(IMAGES))[:12] + b"\xff" * 40, "damaged"),
    ],
)
def test_a_damaged_file_is_named_with_what_it_holds_and_what_it_should(file, content, complaint):
    path = file(content)
    with pytest.raises(InputError) as error:
        read_idx(path, 3)
    assert complaint in str(error.value)
    assert str(path) in str(error.value)
    assert error.value.faults[0].way_out


def test_a_file_that_is_not_there_is_one_clear_report(tmp_path):
    with pytest.raises(InputError, match=r"absent.*no such file"):
        read_idx(tmp_path / "absent", 3)


def test_images_and_labels_must_be_equally_many(file):
    labels = file(idx(np.zeros(3, np.uint8)), "labels")
    with pytest.raises(InputError, match=r"labels: 3 labels, but images has 2 images"):
        read_pair(file(idx(IMAGES), "images"), labels)


def test_swapped_images_and_labels_are_found_by_their_magic_numbers(file):
    images, labels = file(idx(IMAGES), "images"), file(idx(np.zeros(2, np.uint8)), "labels")
    with pytest.raises(InputError, match="not swapped"):
        read_pair(labels, images)
