"""Accuracy and answer length on benchmarks."""
