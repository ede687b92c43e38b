"""The running process: operators that are added to its torch, edited and removed without a restart."""

# The variable that names the loads of a process to those that it starts: a file in the cache folder.
VARIABLE = "TORCH_GRAFT_LOADS"
