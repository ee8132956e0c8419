"""A session as a Slurm job array: a task for each shard, and a job that puts them together and decides."""
