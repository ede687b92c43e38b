"""Compile and link what was generated and the native folder's kernels."""
