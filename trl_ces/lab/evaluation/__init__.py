"""Evaluation of accuracy and completion length on benchmarks."""
