"""Which user something is done as: the privileged helper `ejb-as`, the daemon's sessions with it, and users' spools."""
