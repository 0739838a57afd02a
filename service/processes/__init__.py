"""Runs the service in several processes of a machine: one runs the models' graphs, the others speak HTTP and prepare documents."""
