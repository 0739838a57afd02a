"""Collections: documents, queries, judgements, runs, from files and `ir_datasets`."""
