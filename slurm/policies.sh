#!/bin/bash
# Policies against each other on one workload (the paper's Figs. 9 and 14), over policy and seed.
# One array task, and one file, per (policy, seed). From the folder that holds inputs/:
#
#     sbatch slurm/policies.sh speech                                                # 4 policies, ten seeds: 40 tasks
#     HPCTRIP_POLICIES="dynamic static" HPCTRIP_SEEDS="1 2" sbatch --array=0-3 --ntasks=3 --gpus=0 slurm/policies.sh shakespeare
#
# The first argument is the workload, what follows goes to hpctrip. Array index i means policy = POLICIES[i / number of
# seeds], seed = SEEDS[i modulo number of seeds], and the input file inputs/WORKLOAD_POLICY.toml. Submitted again, a
# sweep does only what is missing. Options of sbatch win over the lines below. Afterwards:
#
#     hpctrip plot fig09_policies 'results/speech_policies/*.h5'
#
# HPCTRIP_POLICIES, HPCTRIP_SEEDS  the two lists; --array must then be 0 to (number of policies) x (number of seeds) - 1
# HPCTRIP_SWEEP                    folder of the results inside results/; default WORKLOAD_policies, and in it a folder
#                                  named after what the arguments change, if anything
#
# All of Fig. 9, 70 tasks:
#
#     HPCTRIP_POLICIES="dynamic static highest_power random fixed_radius centralized_25 centralized_50" \
#         sbatch --array=0-69 slurm/policies.sh emnist
#
#SBATCH --job-name=policies
#SBATCH --output=slurm-%x-%A_%a.out
#SBATCH --time=04:00:00
#SBATCH --array=0-39
#SBATCH --nodes=1
#SBATCH --ntasks=5              # the aggregator and one host per GPU
#SBATCH --gpus=4
set -euo pipefail

source slurm/launch.sh
workload=${1:-}
case $workload in   # the centralized one as in the other workloads: half of its power
    emnist) policies="dynamic static random centralized_50" ;;
    llm) policies="lora static random centralized" ;;   # PowerTrip on adapters
    *) policies="dynamic static random centralized" ;;
esac
choose_task policies "${HPCTRIP_POLICIES:-$policies}" "${HPCTRIP_SEEDS:-0 1 2 3 4 5 6 7 8 9}"
policy=$chosen
input=inputs/${workload}_$policy.toml
if [[ ! -f $input ]]; then
    echo "policies.sh: there is no $input; give a workload of: $(cd inputs && echo *_"$policy".toml)" >&2
    exit 2
fi
shift
choose_folder "${workload}_policies" "$@"

launch "$input" -o seed="$seed" "$@" --out "$folder/${policy}_seed$seed.h5" --resume
