"""What a GPU does: one script measures all of it within half an hour, a part at a time, and writes docs/gpu.md."""
