"""Other systems' command lines, one module each; `sonde compat link` writes the programs that call them."""
