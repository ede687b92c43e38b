"""Measurements: benchmarks of operators and of builds, surfaces of an operator, random calls."""
