"""What everything else stands on: errors, time, tasks, circuit breakers."""
