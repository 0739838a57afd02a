"""keyblock-bulk: re-ranks millions of candidate lists with a bundle, on one machine or on Ray."""
