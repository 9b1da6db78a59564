"""What a model answers to benchmarks, how often it is right, and how many tokens it takes."""
