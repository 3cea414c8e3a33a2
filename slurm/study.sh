#!/bin/bash
# The runs of a study as tasks of a job array; `hpctrip study NAME --slurm` writes and submits this script.
# By hand, from the folder that holds inputs/:
#
#     sbatch --array=0-69%10 slurm/study.sh fig09                                    # ten of seventy runs at a time
#     sbatch --array=0-5 --ntasks=3 --gpus=0 slurm/study.sh fig08 -o policy.k=10,40,70 -o seed=1,2
#
# Array index i means run i of `hpctrip study NAME --list`. A task whose run is finished ends at once. One that nears its
# time limit, or is preempted, leaves a checkpoint and goes back into the queue (see HPCTRIP_MAX_REQUEUES in
# slurm/launch.sh). Options of sbatch win over the lines below; what follows the script goes to `hpctrip study`, which
# makes table and figures once all is there.
#
#SBATCH --job-name=study
#SBATCH --output=slurm-%x-%A_%a.out
#SBATCH --open-mode=append      # a task that is requeued goes on in its log
#SBATCH --requeue
#SBATCH --time=04:00:00
#SBATCH --nodes=1
#SBATCH --ntasks=5              # the aggregator and one host per GPU
#SBATCH --gpus=4
set -euo pipefail

source slurm/launch.sh
launch_again study "$@" --task "$SLURM_ARRAY_TASK_ID"
