"""Of every open job a few columns, kept in memory between polls."""
