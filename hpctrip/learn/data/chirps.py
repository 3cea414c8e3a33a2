"""Chirps: a synthetic stand-in for Speech Commands. No download needed, a millisecond a clip.

A word is a melody: four pitches within two octaves, between which a tone glides. A speaker has a pitch, a pace
and a timbre (five harmonics). A clip is a speaker's word with its own start, mistuning, loudness and noise. It is not
speech: accuracies say how learning proceeds, and must not be compared with those on Speech Commands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from pydantic import Field, model_validator

from hpctrip.base.rng import stream
from hpctrip.config.component import Component
from hpctrip.learn.data.mfcc import SAMPLE_RATE, mfcc
from hpctrip.learn.data.speech import Clips, check_words

_MOST_CLIPS = 1_000_000
_NUM_PITCHES = 4
_MELODY_OCTAVES = 2
_VOICE_OCTAVES = 0.75
_NUM_HARMONICS = 5


class Chirps(Component):
    """Synthesis of the synthetic words (used only with `data = "chirps"`)."""

    num_words: int = Field(10, ge=2, le=1000)
    """Different words: word0, word1, ..."""
    num_speakers: int = Field(50, ge=2, le=100_000)
    """Speakers, each of whom says every word `repetitions` times."""
    repetitions: int = Field(4, ge=1, le=1000)
    """Clips of a word by one speaker. At most a million clips in all, of 8 kB each."""
    noise: float = Field(0.05, ge=0, le=10)
    """Standard deviation of the white noise, as a fraction of the tone's greatest amplitude."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        return self.product_at_most(_MOST_CLIPS, "num_words", "num_speakers", "repetitions")

    def draw(self, words: Sequence[str] | None, seed: int) -> Clips:
        """The clips of these words (None: all). A word is the same melody for every seed; speakers are not."""
        available = [f"word{word}" for word in range(self.num_words)]
        check_words(words, available, "the chirps")
        clips = {}
        for speaker in range(self.num_speakers):
            rng = stream(seed, "chirps/speaker", speaker)
            voice = _Voice(rng)
            for number, word in enumerate(available):
                melody = stream(0, "chirps/word", number).uniform(0, _MELODY_OCTAVES, _NUM_PITCHES)
                for repetition in range(self.repetitions):
                    tone = voice.say(melody, rng)
                    tone += self.noise * rng.standard_normal(len(tone))
                    if words is None or word in words:
                        clips[f"{word}/speaker{speaker}_nohash_{repetition}"] = mfcc(tone)
        names = sorted(clips)
        return Clips(names, np.stack([clips[name] for name in names]), lists={})


class _Voice:
    """Properties that all clips of a speaker share."""

    def __init__(self, rng: np.random.Generator):
        self.pitch_hz = 150 * 2 ** rng.uniform(0, _VOICE_OCTAVES)
        self.duration_s = rng.uniform(0.5, 0.8)
        harmonics = rng.uniform(0.2, 1, _NUM_HARMONICS) / np.arange(1, _NUM_HARMONICS + 1)
        self.harmonics = np.append(harmonics[::-1] / harmonics.sum(), 0)  # as a polynomial, the highest first

    def say(self, melody: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """[16,000] one second with the melody (octaves above the speaker's pitch) somewhere in it; amplitude <= 1."""
        duration_s = self.duration_s * rng.uniform(0.9, 1.1)
        start_s = rng.uniform(0, 1 - duration_s)
        progress = (np.arange(SAMPLE_RATE) / SAMPLE_RATE - start_s) / duration_s  # 0..1 while it sounds
        knots = melody + rng.normal(0, 0.03, len(melody))
        octaves = np.interp(progress, np.linspace(0, 1, len(melody)), knots)
        phase = 2 * np.pi * np.cumsum(self.pitch_hz * np.exp2(octaves)) / SAMPLE_RATE
        # e^{in phi} is a power of e^{i phi}: one exponential for all harmonics
        tone = np.polyval(self.harmonics, np.exp(1j * phase)).imag
        swell = np.sin(np.pi * progress.clip(0, 1)) ** 0.5
        return tone * swell * rng.uniform(0.3, 1)
