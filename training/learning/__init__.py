"""From a recipe to a trained run."""
