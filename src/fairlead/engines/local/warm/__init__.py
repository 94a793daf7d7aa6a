"""Warm starts: processes that have imported a job's modules and wait for its next lease.

    pool     in the scheduler: which standbys there are, and which lease fits which
    keeper   one for each standby: takes the place of the shim and supervises the lease as the shim does
    loader   the standby itself, run by the job's interpreter as the job's user: imports, waits, becomes the job

A standby serves one lease and ends with it. It ends without one when the scheduler ends, when it grows too large or
when it hangs; the lease is then started by the shim, as without standbys.
"""
