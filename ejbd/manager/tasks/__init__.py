"""What lasts as long as the daemon does: each task waits for its event or its time, and goes on."""
