"""Reads and writes workloads, profiles and clusters; generates workloads."""
