"""Share: transports carry lines, and the exchange that uses them."""
