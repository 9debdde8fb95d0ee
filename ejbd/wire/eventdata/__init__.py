"""What the `data` of events holds, by subject. Times are seconds since the epoch (UTC), durations are seconds."""
