#!/bin/bash
#PBS -N metrics-test
#PBS -V
#PBS -j oe
#PBS -k eod
#PBS -q workq
#PBS -l walltime=01:00:00
#PBS -l select=2:ncpus=6:mpiprocs=12

cd $PBS_O_WORKDIR

# PBS writes the node file on the first node only: a copy, in a directory that the nodes share, tells the others.
cp $PBS_NODEFILE nodefile

mpirun --map-by node -np 2 -x PBS_NODEFILE_LOCAL=$PWD/nodefile sonde record -i 5s -v --report --export csv &
sleep 2
mpirun --map-by node -np 2 python3 matmul.py 400
wait
