"""What users have done here, or tried: one line of JSON for each act, in a file of its own or in the journal."""
