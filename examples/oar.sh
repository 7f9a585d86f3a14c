#!/bin/bash
#OAR -n metrics-test
#OAR -l nodes=2,walltime=01:00:00

cd $OAR_WORKING_DIRECTORY
NODES=$(sort -u $OAR_NODEFILE | wc -l)

mpirun --map-by node -np $NODES --machinefile $OAR_NODEFILE --mca plm_rsh_agent oarsh -x OAR_JOB_ID sonde record &
sleep 2
mpirun --map-by node -np $NODES --machinefile $OAR_NODEFILE --mca plm_rsh_agent oarsh python3 matmul.py 400
wait
