"""Who runs a stage's shards: processes of this machine, or Ray."""
