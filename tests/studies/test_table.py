"""Notation of the indices of Slurm job arrays."""

from hpctrip.studies.slurm import spans


def test_indices_of_an_array_are_written_as_slurm_reads_them():
    assert spans([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8" and spans([4]) == "4"
