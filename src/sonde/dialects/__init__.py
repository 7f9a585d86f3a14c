"""Other systems' languages, one package each."""
