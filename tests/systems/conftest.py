"""What all tests of front ends need."""

from __future__ import annotations

from tests import grpc_engine

grpc_engine.keep()
