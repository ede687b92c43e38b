"""Write the delivery: a wheel of torch, a tree for ``make develop``, or a thin wheel."""
