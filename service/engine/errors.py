"""Errors that the model's thread raises."""


class EngineError(RuntimeError):
    """A batch with sequences of the request failed, or the warm-up of a model failed; the engine goes on."""


class EngineDeadError(RuntimeError):
    """The model's thread is not running, so no more sequences are scored."""
