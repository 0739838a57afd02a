"""The service on Ray Serve: preparation and models in processes of their own, scaled apart. Ray is imported in `deployments` alone."""
