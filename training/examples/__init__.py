"""From collections to the packed examples that a model is trained on."""
