"""Accuracy and completion length on benchmarks."""
