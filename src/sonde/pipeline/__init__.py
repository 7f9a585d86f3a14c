"""From collectors to sinks: the runner paces and guards, the enricher labels, the outlet queues and retries."""
