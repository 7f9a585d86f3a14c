"""dynolog's framing: a native int32 length, then JSON; one request and one reply per connection."""
