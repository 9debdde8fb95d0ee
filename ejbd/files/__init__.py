"""Where EJB keeps its files and whether they can be trusted; and reading, with care, what users may have put there."""
