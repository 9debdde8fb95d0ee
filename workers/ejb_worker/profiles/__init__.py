"""What a profile of an application means, for the worker and for `ejb profile`: by the standard library alone.

A profile is an object with the attributes of `ejbd.profiles.profile.Profile`; in a worker it is made of JSON.
"""
