"""The tables and figures of Liu & Weissman (SC'15), and the guard of EJB on their logs."""
