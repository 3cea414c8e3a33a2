"""MFCC 40 x 98, the front end of the Keyword Transformer (Berg et al. 2021, Sec. 4; its released configuration).

A clip of one second at 16 kHz is cut into windows of 30 ms (480 samples) every 10 ms (160 samples): 98 frames, none
padded. Of each frame x:

* periodic Hann window: w[n] = 1/2 - 1/2 cos(2 pi n / 480); no pre-emphasis, no dither;
* magnitude spectrum |X[k]|, k = 0..256, of the frame padded with zeros to 512 samples (not squared);
* 80 mel bands from 20 Hz to 7600 Hz: triangles whose slopes are linear in mel(f) = 1127 ln(1 + f / 700) (the HTK
  formula), edges equidistant in mel, peak 1. The lowest are narrower than a bin, and some hold none;
* logarithm, natural, of max(band, 1e-12);
* DCT-II c[j] = sqrt(2 / 80) sum_m log_band[m] cos(pi j (2 m + 1) / 160), of which the first 40 are kept. That is the
  orthonormal DCT but for c[0], which is sqrt(2) times as large.

Shapes: F = 98 frames, K = 257 bins, M = 80 bands, C = 40 coefficients.
"""

from __future__ import annotations

import numpy as np

SAMPLE_RATE = 16_000
WINDOW = 480
HOP = 160
NUM_COEFFICIENTS = 40

_FFT = 512
_NUM_BANDS = 80
_EDGES_HZ = 20.0, 7600.0
_FLOOR = 1e-12


def mfcc(clip: np.ndarray) -> np.ndarray:
    """[num_samples] waveform in -1..1 -> [F, C] float32. Shorter clips are padded with zeros at their end, as the
    released code does, longer ones cut; computed in float64."""
    second = np.zeros(SAMPLE_RATE)
    second[: len(clip)] = clip[:SAMPLE_RATE]
    frames = np.lib.stride_tricks.sliding_window_view(second, WINDOW)[::HOP]  # [F, WINDOW]
    bands = np.abs(np.fft.rfft(frames * _HANN, _FFT)) @ _BANDS
    return (np.log(np.maximum(bands, _FLOOR)) @ _DCT).astype(np.float32)


def _mel(hertz: np.ndarray) -> np.ndarray:
    return 1127.0 * np.log1p(hertz / 700.0)


def _mel_bands() -> np.ndarray:
    """[K, M]: what each bin of the spectrum adds to each band."""
    bins = _mel(np.linspace(0, SAMPLE_RATE / 2, _FFT // 2 + 1))[:, None]
    edges = np.linspace(*_mel(np.array(_EDGES_HZ)), _NUM_BANDS + 2)
    low, centre, high = edges[:-2], edges[1:-1], edges[2:]
    return np.minimum((bins - low) / (centre - low), (high - bins) / (high - centre)).clip(0)


_HANN = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
_BANDS = _mel_bands()
_DCT = np.sqrt(2 / _NUM_BANDS) * np.cos(
    np.pi * np.outer(2 * np.arange(_NUM_BANDS) + 1, np.arange(NUM_COEFFICIENTS)) / (2 * _NUM_BANDS)
)
