"""The page: what the cluster, the queue and a job are doing, as HTML made by the daemon."""
