"""The foundation: errors, time, background tasks, circuit breakers."""
