"""`hardware-counters`: our figures beside those of Nsight Compute."""
