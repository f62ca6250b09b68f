"""Run a router whose fleet stands in the environment: python -m benchmarks.fleet.router."""

from service.process.run import serve

serve(factory="fleet.serving.ray_app:create")
