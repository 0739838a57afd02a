"""The online service: FastAPI around the ranking core, one process, one queue, one thread that owns the model."""
