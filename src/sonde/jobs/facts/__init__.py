"""What a node is: one module per subject, each reading files of /proc, /sys and /etc and nothing else."""
