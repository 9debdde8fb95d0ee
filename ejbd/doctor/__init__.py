"""`ejb doctor`: what must be right on a site before EJB can do its work, and the probes that find out by trying."""
