"""A gRPC server for the systems that speak it."""
