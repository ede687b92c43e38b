"""``graft adopt``: the operators of an extension that exists, as native operators. Nothing of it is moved or parsed.

What there is comes from the dispatcher, which a child process reads before and after it imports the extension
(``child``). Each operator becomes an entry with the kernel CompositeImplicitAutograd, which calls it (``plan``,
``forwards``), so it has the results, gradients, fake implementations and batching rules of the extension's own.
"""
