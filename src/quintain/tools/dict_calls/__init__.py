"""Dict calls for Python programs, and the APIs of the systems whose programs run on them."""
