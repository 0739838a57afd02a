"""Makes packed training examples from collections."""
