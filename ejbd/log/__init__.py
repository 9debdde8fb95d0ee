"""The log of the daemon: a stream that cannot fail, and a bound on lines that come again and again."""
