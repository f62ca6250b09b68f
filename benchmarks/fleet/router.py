"""Run a router whose fleet stands in the environment: python -m benchmarks.fleet.router."""

from fullrank_service.process.run import serve

serve(factory="fullrank_fleet.serving.ray_app:create")
