"""dynolog's language: its flags, its names and units, its log line, page and relays."""
