"""Exploration of one stored run: any instant, machine or job."""
