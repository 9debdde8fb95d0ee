"""Words that the API and its clients share: a leaf that imports nothing of ours."""
