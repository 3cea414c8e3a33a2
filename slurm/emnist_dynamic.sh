#!/bin/bash
# The paper's set-up: 100 virtual sites on 40 GPUs, cohorts chosen by PowerTrip.
# From the folder that holds inputs/:
#
#     sbatch slurm/emnist_dynamic.sh
#     sbatch --ntasks=9 --gpus=8 slurm/emnist_dynamic.sh                             # 8 GPUs
#     sbatch --ntasks=5 --gpus=0 slurm/emnist_dynamic.sh -o stop.max_rounds=20       # no GPU; arguments of hpctrip
#
# Options of sbatch win over the lines below; what follows the script goes to hpctrip. Results: results/ by job id.
#
#SBATCH --job-name=emnist_dynamic
#SBATCH --output=slurm-%x-%j.out
#SBATCH --time=04:00:00
#SBATCH --ntasks=41             # rank 0 is the aggregator and uses no GPU; 40 ranks host the sites
#SBATCH --gpus=40               # of the job, not per task: 41 tasks share 40; a rank takes the one of its place on the node
#SBATCH --exclusive             # whole nodes (10 of 4 GPUs, 5 of 8), so that the next line can deal out evenly:
#SBATCH --distribution=cyclic   # 5 ranks on the first node (the aggregator's), 4 on each other
#SBATCH --mem=0                 # all memory of the nodes
set -euo pipefail

source slurm/launch.sh
launch inputs/emnist_dynamic.toml --out "results/emnist_dynamic_$SLURM_JOB_ID.h5" "$@"
