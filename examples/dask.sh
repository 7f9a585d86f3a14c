#!/bin/bash
#SBATCH --time=00:30:00
#SBATCH -J sdp-metrics-test
#SBATCH --nodes=2
#SBATCH --ntasks=2
#SBATCH --mail-type=FAIL
#SBATCH --no-requeue
#SBATCH --exclusive
#SBATCH --output="slurm-%J.out"

SCHEFILE=$PWD/${SLURM_JOB_ID}.dasksche.json
WORKSPACE=$PWD/dask-worker-space

rm -rf $SCHEFILE
rm -rf $WORKSPACE

export DASK_SCHEDULER_FILE="$SCHEFILE"
export SLURM_OVERLAP=1  # steps share the CPUs of the job, as they did before Slurm 20.11

#! Set up python
echo -e "Running python: `which python3`"
echo -e "Running dask: `which dask`"

cd $SLURM_SUBMIT_DIR
echo -e "Changed directory to `pwd`.\n"

JOBID=${SLURM_JOB_ID}
echo ${SLURM_JOB_NODELIST}

scheduler=$(scontrol show hostnames $SLURM_JOB_NODELIST | uniq | head -n1)

echo "run dask scheduler"
srun -N 1 -n 1 -w ${scheduler} dask scheduler --port=8786 --scheduler-file=$SCHEFILE &
sleep 5

echo "Monitoring script"
srun -n $SLURM_JOB_NUM_NODES --ntasks-per-node 1 sonde record &
export MON_PID=$!

# --nprocs is --nworkers since dask 2022.
echo "run dask worker"
srun -n ${SLURM_JOB_NUM_NODES} dask worker --nanny --nworkers 4 --nthreads 1 \
    --memory-limit 200GB --scheduler-file=$SCHEFILE ${scheduler}:8786 &

echo "Scheduler and workers now running"

#! We need to tell dask Client (inside python) where the scheduler is running
echo "Scheduler is running at ${scheduler}"

CMD="python3 cluster_dask_test.py ${scheduler}:8786 | tee cluster_dask_test.log"
eval $CMD

echo "FINISHED" > .ipc-$SLURM_JOB_ID
wait $MON_PID
