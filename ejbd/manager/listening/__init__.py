"""Workers that call, and for how long they are waited for."""
