"""Elastic job bundling (Liu & Weissman, SC'15), the policy that EJB came with.

`handlers` answers a policy's questions in words, `candidates` lists what can be done, `plan` walks what is held to its
end. Nothing is imported before it is asked for.
"""
