"""One subject each: a module declares its metrics, reads its source, parses it. See CONTRIBUTING for a new one."""
