"""The modules of the families in lab.families."""
