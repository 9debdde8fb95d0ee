"""The docs as a site: which files are its pages, and the page of REST operations."""
