"""The model in another process than preparation: what both say to each other, and both ends of it. Who carries it is above."""
