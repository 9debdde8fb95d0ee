"""Hands on the batch system: one protocol (:mod:`ejbd.batch.base`) and one adapter a folder."""
