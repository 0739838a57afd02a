"""Collections: documents, queries, judgements, runs, from wherever they are kept."""
