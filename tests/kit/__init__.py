"""Measurements: benchmarks of operators and of builds, surfaces of operators, random calls."""
