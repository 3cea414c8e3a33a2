#!/bin/bash
# Comparison of policies on one workload (the paper's Figs. 9 and 14), over policy and seed, as a job array.
# One array task per (policy, seed), each on an aggregator and four GPUs. On a login node:
#
#     bash slurm/policies.sh speech --partition gpu                                  # 7 policies, ten seeds: 70 tasks
#     bash slurm/policies.sh emnist                                                  # all of Fig. 9
#     bash slurm/policies.sh shakespeare --ranks 3 --gpus 0 -o seed=1,2
#
# The first argument is the workload: the study WORKLOAD_policies. What follows goes to `hpctrip study submit`.
set -euo pipefail

exec python -m hpctrip study submit "${1:?give a workload, such as speech}_policies" --ranks 5 --gpus 4 "${@:2}"
