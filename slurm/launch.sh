# Sourced by the scripts of this folder: `launch ARGUMENTS...` runs `python -m hpctrip ARGUMENTS...` on all ranks of the
# surrounding Slurm job. `hpctrip slurm NAME` writes a script that holds this text and the settings of a site. They are
# variables of the user's environment:
#
# HPCTRIP_MODULES    modules to load: the MPI that mpi4py was built with, e.g. "python/3.11 openmpi cuda"
# HPCTRIP_SETUP      file to source: whatever else the site needs
# HPCTRIP_VENV       virtual environment to use; default: the active one, else .venv, else the python on PATH
# HPCTRIP_CONTAINER  the words that run a command in a container, e.g. "apptainer exec --nv hpctrip.sif"; its python
#                    is used then, and no virtual environment
# HPCTRIP_LAUNCHER   how to start ranks, e.g. "srun --mpi=pmix_v4" or "mpirun -np {n} --bind-to core {python}": {n} is
#                    their number, {python} that python; where both are left out, "-n {n} {python}" follows.
#                    Default: the first of srun --mpi=pmix, srun --mpi=pmi2 and mpirun that joins all ranks
# HPCTRIP_MAX_REQUEUES  number of requeues (default 100) after which a job gives up, so that a run that makes no
#                    progress ends

set +u   # what others wrote may use variables that are not set
[[ -z ${HPCTRIP_MODULES:-} ]] || module load $HPCTRIP_MODULES
[[ -z ${HPCTRIP_SETUP:-} ]] || source "$HPCTRIP_SETUP"
set -u

python=python
venv=${HPCTRIP_VENV:-${VIRTUAL_ENV:-.venv}}
if [[ -n ${HPCTRIP_CONTAINER:-} ]]; then
    python="$HPCTRIP_CONTAINER python"
elif [[ -f $venv/bin/activate ]]; then
    source "$venv/bin/activate"
elif [[ -n ${HPCTRIP_VENV:-} ]]; then
    echo "launch.sh: HPCTRIP_VENV=$HPCTRIP_VENV is not a virtual environment" >&2
    exit 2
fi
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}   # a rank has one core; its threads would fight for those of the others

launch() {
    choose_launcher
    echo "job $SLURM_JOB_ID on $SLURM_JOB_NODELIST: $launcher -m hpctrip $*"
    exec $launcher -m hpctrip "$@"
}

# `launch_again ARGUMENTS...`: as `launch`, and puts the job into the queue again where hpctrip ends with code 85.
launch_again() {
    local code=0
    (launch "$@") || code=$?
    requeue "$code"
}

# `requeue CODE`: ends with this exit code, or puts the job into the queue again where it is 85.
requeue() {
    local restarts=${SLURM_RESTART_COUNT:-0} most=${HPCTRIP_MAX_REQUEUES:-100}
    (($1 == 85)) || exit "$1"
    if [[ $(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%T) != RUNNING ]]; then
        echo "launch.sh: cancelled or preempted"   # a requeue would undo scancel
    elif ((restarts >= most)); then
        echo "launch.sh: given up after $restarts requeues (HPCTRIP_MAX_REQUEUES)" >&2
        exit 85
    else
        echo "launch.sh: requeued, $((most - restarts - 1)) more to come at most"
        scontrol requeue "$SLURM_JOB_ID"
    fi
}

# Under a launcher that does not fit the MPI library every rank believes to be alone. So each is tried, which takes a
# second, until rank 0 sees all the others. What the wrong ones complain about is of interest only if none fits.
choose_launcher() {
    local candidates=("srun --mpi=pmix" "srun --mpi=pmi2" mpirun)
    [[ -z ${HPCTRIP_LAUNCHER:-} ]] || candidates=("$HPCTRIP_LAUNCHER")
    local count_ranks="from mpi4py.MPI import COMM_WORLD as world; world.rank or print(world.size)"
    local complaints seen pattern
    complaints=$(mktemp)
    for pattern in "${candidates[@]}"; do
        [[ $pattern == *"{n}"* || $pattern == *"{python}"* ]] || pattern+=" -n {n}"
        [[ $pattern == *"{python}"* ]] || pattern+=" {python}"
        launcher=${pattern//"{n}"/$SLURM_NTASKS}
        launcher=${launcher//"{python}"/$python}
        echo "$launcher:" >> "$complaints"
        seen=$(timeout 120 $launcher -c "$count_ranks" 2>> "$complaints" | xargs) || true
        if [[ $seen == "$SLURM_NTASKS" ]]; then
            rm "$complaints"
            return
        fi
        echo "rank 0 counts ${seen:-no} ranks, not $SLURM_NTASKS" >> "$complaints"
    done
    cat "$complaints" >&2
    rm "$complaints"
    echo "launch.sh: no launcher joins $SLURM_NTASKS ranks; set HPCTRIP_LAUNCHER. $(srun --mpi=list 2>&1)" >&2
    exit 1
}
