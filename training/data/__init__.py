"""Collections and training examples: documents, queries, judgements and runs, from files and `ir_datasets`, packed for a model."""
