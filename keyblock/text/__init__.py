"""From text to tokens, terms and their document frequencies."""
