"""Files in and out: workloads, profiles, clusters; and generated workloads."""
