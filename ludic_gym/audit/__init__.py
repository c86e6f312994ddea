"""Audits of environments: can the reward be trusted, and does the seed decide everything?"""
