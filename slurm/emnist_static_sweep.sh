#!/bin/bash
# Time-to-accuracy against a fixed cohort size (the paper's Fig. 8), over k and seed: the study fig08 as a job array.
# One array task per (k, seed), each on an aggregator and four GPUs. On a login node:
#
#     bash slurm/emnist_static_sweep.sh --partition gpu                              # k = 10..100, ten seeds: 100 tasks
#     bash slurm/emnist_static_sweep.sh --ranks 3 --gpus 0 -o policy.k=10,40,70 -o seed=1,2
#
# What follows the script goes to `hpctrip study submit`; its last option of a name counts.
set -euo pipefail

exec python -m hpctrip study submit fig08 --ranks 5 --gpus 4 "$@"
