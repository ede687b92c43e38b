"""Add, edit and remove operators in the torch of a running process, without a restart."""

# The environment variable that child processes inherit: the name of a file in the cache folder that lists the loads.
VARIABLE = "TORCH_GRAFT_LOADS"
