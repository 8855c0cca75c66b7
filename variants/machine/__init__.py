"""The machine a run uses: versions, GPU, memory, read bandwidth, clock, child processes."""
