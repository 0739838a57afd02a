"""Bodies of requests: received, unpacked and read as JSON, all within limits."""
