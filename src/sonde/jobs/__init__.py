"""The record of a job: what ran where, how it went, what it teaches."""
