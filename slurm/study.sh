#!/bin/bash
# The runs of a frozen list as tasks of a job array; `hpctrip study submit NAME` writes and submits this script.
# By hand, after `hpctrip study submit NAME --write` has written LIST:
#
#     sbatch --array=0-69%10 slurm/study.sh LIST                                     # ten of seventy runs at a time
#     sbatch --array=0-69 --ntasks=5 --gpus=4 slurm/study.sh LIST                    # more for each run
#
# Array index i means run i of the list. A task whose run is finished ends at once. One that nears its time limit, or is
# preempted, leaves a checkpoint and goes back into the queue (see HPCTRIP_MAX_REQUEUES in slurm/launch.sh). Options of
# sbatch win over the lines below. `hpctrip study status NAME` tells how far it is, `hpctrip study tables NAME` makes
# table and figures.
#
#SBATCH --job-name=study
#SBATCH --output=slurm-%x-%A_%a.out
#SBATCH --open-mode=append      # a task that is requeued goes on in its log
#SBATCH --requeue
#SBATCH --time=04:00:00
#SBATCH --nodes=1
#SBATCH --ntasks=1              # of every run: one rank, or the aggregator and hosts
set -euo pipefail

source slurm/launch.sh
launch_again study job "$@"
