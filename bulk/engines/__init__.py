"""Engines that run a stage's shards: processes of this machine, or Ray."""
