"""What the daemon tells of itself: health, metrics, the watchdog."""
