"""keyblock-bulk: re-ranks millions of candidate lists with a bundle, on one machine, on Ray or in Spark."""
