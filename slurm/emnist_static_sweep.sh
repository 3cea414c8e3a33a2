#!/bin/bash
# Time-to-accuracy against a fixed cohort size (the paper's Fig. 8), over k and seed: the study fig08.
# One array task per (k, seed). From the folder that holds inputs/:
#
#     sbatch slurm/emnist_static_sweep.sh                                            # k = 10..100, ten seeds: 100 tasks
#     sbatch --array=0-5 --ntasks=3 --gpus=0 slurm/emnist_static_sweep.sh -o policy.k=10,40,70 -o seed=1,2
#
# What array indices, options of sbatch and further arguments mean is said in slurm/study.sh.
#
#SBATCH --job-name=fig08_static_sweep
#SBATCH --output=slurm-%x-%A_%a.out
#SBATCH --open-mode=append      # a task that is requeued goes on in its log
#SBATCH --requeue
#SBATCH --time=04:00:00
#SBATCH --array=0-99
#SBATCH --nodes=1
#SBATCH --ntasks=5              # the aggregator and one host per GPU
#SBATCH --gpus=4
set -euo pipefail

source slurm/launch.sh
launch_again study fig08 "$@" --task "$SLURM_ARRAY_TASK_ID"
