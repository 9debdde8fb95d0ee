"""Acts: what is done. The only writers of rows, of memory and of intents, and the executor of these."""
