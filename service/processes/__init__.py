"""The service in several processes of one machine: one runs the models' graphs, the others speak HTTP and prepare documents."""
