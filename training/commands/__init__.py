"""The training commands, one file each."""
