"""One-pass kernels behind `smooth_topk_loss`: Triton on a GPU, Numba on a CPU; both are optional extras."""
