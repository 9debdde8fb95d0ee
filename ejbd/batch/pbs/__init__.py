"""OpenPBS and Torque (with Maui or Moab, where they are), through their own commands."""
