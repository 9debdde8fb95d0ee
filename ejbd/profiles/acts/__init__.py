"""What profiles do: state is copied and put back, a program is started and stopped, and a profile is tried."""
