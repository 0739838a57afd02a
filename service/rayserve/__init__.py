"""The service on Ray Serve: preparation and model in their own processes, scaled separately. Only `deployments` imports Ray."""
