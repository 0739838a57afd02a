"""The commands that make collections and tables of the papers, one file each."""
