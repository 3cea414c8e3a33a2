"""The front end against its formulas, written out, and against another implementation."""

import numpy as np
import pytest

from hpctrip.learn.data.mfcc import mfcc


@pytest.fixture
def clip():
    """A second of a gliding tone with noise."""
    t, noise = np.arange(16_000) / 16_000, np.random.default_rng(0).standard_normal(16_000)
    return 0.5 * np.sin(2 * np.pi * (200 * t + 900 * t**2)) + 0.05 * noise


def by_definition(frame):
    """[40]: every sum of the published front end for one frame [480], none of its shortcuts."""
    n, k = np.arange(480), np.arange(257)
    windowed = frame * (0.5 - 0.5 * np.cos(2 * np.pi * n / 480))
    spectrum = np.abs((windowed * np.exp(-2j * np.pi * np.outer(k, n) / 512)).sum(1))
    mel = 1127 * np.log(1 + k * 31.25 / 700)  # 16,000 / 512 = 31.25 Hz a bin
    first, last = 1127 * np.log(1 + 20 / 700), 1127 * np.log(1 + 7600 / 700)
    step = (last - first) / 81
    logs = [
        np.log(max(1e-12, (spectrum * np.maximum(0, 1 - np.abs(mel - first - (m + 1) * step) / step)).sum()))
        for m in range(80)
    ]
    return [
        np.sqrt(2 / 80) * sum(y * np.cos(np.pi * j * (2 * m + 1) / 160) for m, y in enumerate(logs))
        for j in range(40)
    ]


@pytest.mark.parametrize("frame", [0, 41, 97])
def test_the_features_follow_their_definition(frame, clip):
    features = mfcc(clip)
    assert features.shape == (98, 40) and features.dtype == np.float32
    expected = by_definition(clip[160 * frame : 160 * frame + 480])
    np.testing.assert_allclose(features[frame], expected, rtol=1e-5, atol=1e-4)


def test_the_features_are_those_of_transformers_up_to_the_cosine_transform(clip):
    audio = pytest.importorskip("transformers.audio_utils")
    bands = audio.mel_filter_bank(
        257, 80, 20.0, 7600.0, 16_000, norm=None, mel_scale="kaldi", triangularize_in_mel_space=True
    )
    log_mel = audio.spectrogram(
        clip,
        audio.window_function(480, "hann", periodic=True),
        frame_length=480,
        hop_length=160,
        fft_length=512,
        power=1.0,
        center=False,
        mel_filters=bands,
        mel_floor=1e-12,
        log_mel="log",
        dtype=np.float64,
    )
    m = np.arange(80)
    expected = [np.sqrt(2 / 80) * np.cos(np.pi * j * (2 * m + 1) / 160) @ log_mel for j in range(40)]
    np.testing.assert_allclose(mfcc(clip), np.transpose(expected), rtol=1e-4, atol=1e-3)


def test_silence_is_the_floor_in_every_band():
    silence = mfcc(np.zeros(16_000))
    np.testing.assert_allclose(silence[:, 0], np.sqrt(160) * np.log(1e-12), rtol=1e-6)
    np.testing.assert_allclose(silence[:, 1:], 0, atol=1e-4)


def test_a_short_clip_is_padded_with_zeros_at_its_end_and_a_long_one_cut(clip):
    padded = clip.copy()
    padded[9000:] = 0
    assert np.array_equal(mfcc(clip[:9000]), mfcc(padded))
    assert np.array_equal(mfcc(np.tile(clip, 2)), mfcc(clip))
