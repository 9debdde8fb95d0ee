"""Jobs of widths that are known ahead: what they hold follows their course."""
