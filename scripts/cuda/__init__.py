"""Compile the CUDA sources of a native folder against a CUDA wheel of PyTorch, with nvcc from pip; no GPU is needed."""
