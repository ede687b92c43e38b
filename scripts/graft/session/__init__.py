"""The running process: operators that are added to its torch, edited and removed without a restart."""
