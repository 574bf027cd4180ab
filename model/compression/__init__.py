"""Quantisation and pruning of single matrices, in float64. Knows no files, no HTTP and no whole model."""
