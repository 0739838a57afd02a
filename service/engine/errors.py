"""What the model's thread may say instead of scores."""


class EngineError(RuntimeError):
    """The batch that held a request's sequences failed, or a model's warm-up; the engine goes on."""


class EngineDeadError(RuntimeError):
    """The model's thread is not running: nothing is going to be scored."""
