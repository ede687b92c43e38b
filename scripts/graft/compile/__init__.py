"""Compile and link the generated sources and the native folder's kernels."""
