"""Where frames go. A sink only sends; its outlet queues, filters, retries and counts drops."""
