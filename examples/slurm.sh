#!/bin/bash
#SBATCH --time=00:30:00
#SBATCH -J sdp-metrics-test
#SBATCH --nodes=2
#SBATCH --ntasks=2
#SBATCH --no-requeue
#SBATCH --exclusive
#SBATCH --output="slurm-%J.out"

WORK_DIR=${WORK_DIR:-$SLURM_SUBMIT_DIR}

# Make sure we have the right working directory
cd $WORK_DIR

echo -e "JobID: $SLURM_JOB_ID\n======"
echo "Time: `date`"
echo "Running on master node: `hostname`"
echo "Current directory: `pwd`"

# Since Slurm 20.11 a step has the CPUs of its job to itself, unless it says that it shares them.
export SLURM_OVERLAP=1

srun -n $SLURM_JOB_NUM_NODES --ntasks-per-node 1 sonde record &
export MON_PID=$!
# mpirun --map-by node -np $SLURM_JOB_NUM_NODES sonde record &

mpirun -np ${SLURM_JOB_NUM_NODES} python3 matmul.py 400
# srun -n ${SLURM_JOB_NUM_NODES} python3 matmul.py 400

# Only for jobs that leave something running:
# echo "FINISHED" > .ipc-$SLURM_JOB_ID

wait $MON_PID
