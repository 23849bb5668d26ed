"""The parts of `bench.changing`: what is done to a gateway under load, and what it promised."""
