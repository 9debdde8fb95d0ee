"""What a release is made of: its version, its licence, and the files that come along for a site and a first try."""
