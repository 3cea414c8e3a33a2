#!/bin/bash
# Comparison of policies on one workload (the paper's Figs. 9 and 14), over policy and seed.
# One array task per (policy, seed). From the folder that holds inputs/:
#
#     sbatch slurm/policies.sh speech                                                # 7 policies, ten seeds: 70 tasks
#     sbatch slurm/policies.sh emnist                                                # all of Fig. 9
#     sbatch --array=0-39 slurm/policies.sh llm                                      # 4 policies
#     sbatch --array=0-9 --ntasks=3 --gpus=0 slurm/policies.sh shakespeare -o seed=1,2
#
# The first argument is the workload: the study WORKLOAD_policies. What array indices, options of sbatch and further
# arguments mean is said in slurm/study.sh.
#
#SBATCH --job-name=policies
#SBATCH --output=slurm-%x-%A_%a.out
#SBATCH --open-mode=append      # a task that is requeued goes on in its log
#SBATCH --requeue
#SBATCH --time=04:00:00
#SBATCH --array=0-69
#SBATCH --nodes=1
#SBATCH --ntasks=5              # the aggregator and one host per GPU
#SBATCH --gpus=4
set -euo pipefail

source slurm/launch.sh
launch_again study "${1:?give a workload, such as speech}_policies" "${@:2}" --task "$SLURM_ARRAY_TASK_ID"
