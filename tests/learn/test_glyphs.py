from unittest.mock import Mock

import numpy as np
import pytest

from hpctrip.learn.data import glyphs
from hpctrip.learn.data.glyphs import CHARACTERS, Glyphs


def test_a_sample_is_the_same_picture_however_many_are_drawn():
    few, few_characters = Glyphs().draw(7, seed=3, part="train")
    many, many_characters = Glyphs().draw(600, seed=3, part="train")
    assert np.array_equal(few, many[:7]) and np.array_equal(few_characters, many_characters[:7])
    for other in ({"seed": 4, "part": "train"}, {"seed": 3, "part": "test"}):
        assert not np.array_equal(few, Glyphs().draw(7, **other)[0])


def test_pictures_are_white_on_black_with_about_as_much_ink_as_emnist():
    images, _ = Glyphs().draw(1000, seed=0, part="train")
    assert images.shape == (1000, 28, 28)
    assert images.dtype == np.uint8
    assert 0.14 < images.mean() / 255 < 0.24  # EMNIST by-class: 0.174
    assert images[:, 12:16, 12:16].mean() > 5 * images[:, :2, :2].mean()


def test_every_glyph_of_every_font_leaves_ink():
    images, _ = Glyphs(noise=0.0, frequencies="uniform").draw(2000, seed=0, part="train")
    assert images.max(axis=(1, 2)).min() > 100


def test_clean_print_fits_the_20_pixel_box_in_the_middle():
    images, _ = Glyphs(distortion=0.0, noise=0.0).draw(500, seed=0, part="train")
    ink = images.max(axis=0) > 127
    assert not ink[:3].any() and not ink[-3:].any() and not ink[:, :3].any() and not ink[:, -3:].any()
    rows = np.flatnonzero((images > 127).any(axis=2).any(axis=0))
    assert rows[-1] - rows[0] + 1 in (20, 21, 22)


def test_clean_print_stands_upright():
    images, characters = Glyphs(distortion=0.0, noise=0.0).draw(2000, seed=0, part="train", among="LT")
    mean = {c: images[characters == CHARACTERS.index(c)].mean(axis=0) for c in "LT"}
    assert mean["L"][14:].sum() > mean["L"][:14].sum()  # the foot of the L is at the bottom,
    assert mean["T"][:14].sum() > mean["T"][14:].sum()  # the bar of the T at the top,
    assert mean["L"][:, :14].sum() > mean["L"][:, 14:].sum()  # and the stem of the L on the left


def test_half_of_the_samples_are_digits_as_in_emnist_byclass():
    _, characters = Glyphs().draw(4000, seed=0, part="train")
    digits, upper = (characters < 10).mean(), ((characters >= 10) & (characters < 36)).mean()
    assert digits == pytest.approx(0.495, abs=0.03)
    assert upper == pytest.approx(0.271, abs=0.03)


def test_uniform_frequencies_draw_every_character_alike():
    _, characters = Glyphs(frequencies="uniform").draw(6200, seed=0, part="train")
    counts = np.bincount(characters, minlength=62)
    assert counts.min() > 60 and counts.max() < 140  # 100 expected, standard deviation 10


def test_the_outlines_of_all_fonts_are_computed_by_the_first_process_on_a_machine(cache, monkeypatch):
    """As by the first run of a study with many seeds."""
    monkeypatch.setattr(glyphs, "_computed_fields", computed := Mock(wraps=glyphs._computed_fields))
    drawn = []
    for _ in range(3):
        glyphs._distance_fields.cache_clear()  # each time as in another process
        drawn.append(Glyphs().draw(5, seed=3, part="train")[0])
    glyphs._distance_fields.cache_clear()
    assert computed.call_count == 1
    assert np.array_equal(drawn[0], drawn[1]) and np.array_equal(drawn[0], drawn[2])
