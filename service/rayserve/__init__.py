"""The service on Ray Serve: preparation and model in processes of their own, scaled apart. `deployments` alone imports Ray."""
